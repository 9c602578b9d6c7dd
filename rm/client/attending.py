"""The near end of a session of a job: streams here, frames there, and both over the loss of the daemon.

What was not acknowledged is kept, and sent again when the session is attended again: nothing is lost or
doubled. rm.protocol.sessions has the frames.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from signal import NSIG
from typing import Any, NamedTuple

from rm.client.connection import Connection
from rm.client.websocket import TEXT, WebSocket
from rm.errors import Conflict, LimitReached, RmError, StoreUnavailable, Unreachable, as_told
from rm.protocol.sessions import (
    BYE,
    END_OF_INPUT,
    ENDED,
    ERRORS,
    FRAME_BYTES,
    HAVE,
    HEAD,
    INPUT,
    OUTPUT,
    SIGNAL,
    TAKEN,
    WINDOW,
    WINDOW_BYTES,
    frame,
    frames,
)

PAUSE_S = 0.5  # between two tries to attend again
ROOM_S = 0.02  # between two tries to write what did not fit
PATIENCE_S = 600.0  # with a daemon that is away: as long as the session keeps its end
LARGEST = 1 << 62  # offset of a stream
MASTER = os.makedev(5, 2)  # of pseudo-terminals: /dev/ptmx. Source: Linux, admin-guide/devices.txt
ALIVE_S = 60.0  # the daemon pings every 20 s: a connection that says nothing for so long is dead


class _Left(Exception):
    """`look` has left the session."""


class Ended(NamedTuple):
    """How the session's program ended."""

    code: int
    signal: int

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else self.code


class Streams(NamedTuple):
    """Descriptors of this side; -1: none. `wake` becomes readable when `look` is to be called, which may call
    methods of the session and returns False to leave it. `write` takes what the program says on a stream, in
    place of the descriptors."""

    stdin: int
    stdout: int
    stderr: int
    wake: int = -1
    look: Callable[[Session], bool] = lambda session: True
    write: Callable[[int, bytes], None] | None = None


class Session:
    """One session of job `job`. `begin` says how it begins, None: it has begun. `note` hears that the daemon
    went away, with `meanwhile` behind it; the session waits `patience_s` for the daemon."""

    def __init__(
        self,
        connection: Callable[[], Connection],
        job: int,
        host: str,
        name: str,
        begin: Mapping[str, Any] | None,
        note: Callable[[str], None],
        patience_s: float = PATIENCE_S,
        meanwhile: str = "The session goes on; trying to attend it again.",
    ) -> None:
        self._connection, self._job, self._host, self._name = connection, job, host, name
        self._begin, self._note, self._patience_s, self._meanwhile = begin, note, patience_s, meanwhile
        self._socket: WebSocket | None = None
        self._inbox = bytearray()
        self._input = bytearray()  # not acknowledged; its first byte has the offset `_taken`
        self._taken = self._sent = self._got = 0
        self._input_ends = self._end_sent = False
        self._typed = False  # the input comes from a terminal
        self._ended: Ended | None = None
        self.began = False  # it was attended here
        self.displaced = False  # somebody else attends it now

    # what this side says

    def resize(self, rows: int, columns: int) -> None:
        self._say(frame(WINDOW, 0, struct.pack("!2H", rows, columns)))

    def signal(self, number: int) -> None:
        self._say(frame(SIGNAL, number))

    def hang_up(self) -> None:
        """The terminal here is closed."""
        with suppress(OSError):
            self._say(frame(BYE, 0))

    def close(self) -> None:
        """Attend it no more: the daemon tells the session so."""
        self._drop()

    def _say(self, data: bytes) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(data)

    # the whole

    def attend(self, streams: Streams) -> Ended | None:
        """Until the program has ended; None if `look` has left it.

        Raises:
            RmError: the session could not begin, or is lost.
        """
        stdin = streams.stdin
        self._typed = stdin >= 0 and os.isatty(stdin)
        while True:
            try:
                self._connect(streams)
                self._take(streams)  # what came with the greeting: all, of a program that ended before it
                while self._ended is None:
                    stdin = self._turn(streams, stdin)
                with suppress(OSError):
                    self._say(frame(TAKEN, self._got + 1))
                return self._ended
            except _Left:
                return None
            except OSError:
                self._drop()
            except (ValueError, struct.error):
                raise self._nonsense() from None
            finally:
                if self._ended is not None:
                    self._drop()

    def _turn(self, streams: Streams, stdin: int) -> int:
        socket = self._socket
        assert socket is not None
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN)
        if streams.wake >= 0:
            poll.register(streams.wake, select.POLLIN)
        if stdin >= 0 and len(self._input) < WINDOW_BYTES:
            poll.register(stdin, select.POLLIN)
        ready = dict(poll.poll(0 if socket.pending() else ALIVE_S * 1000))
        if not ready and not socket.pending():
            raise ConnectionError("the daemon is silent")
        if streams.wake in ready:
            self._woken(streams)
        if stdin in ready:
            stdin = self._read(stdin)
        if socket.fileno() in ready or socket.pending():
            for data in socket.heard():
                self._inbox += data
                self._take(streams)
        return stdin

    def _woken(self, streams: Streams) -> None:
        with suppress(BlockingIOError):
            os.read(streams.wake, 4096)
        if not streams.look(self):
            raise _Left

    def _read(self, stdin: int) -> int:
        try:
            data = os.read(stdin, FRAME_BYTES)
        except BlockingIOError:
            return stdin
        except OSError:
            data = b""
        if not data and self._typed and not os.isatty(stdin):
            return -1  # the terminal was closed: who attends next types on
        self._input += data
        self._input_ends = not data
        self._send_input()
        return stdin if data else -1

    def _send_input(self) -> None:
        socket = self._socket
        assert socket is not None
        while self._sent < self._taken + len(self._input):
            start = self._sent - self._taken
            data = bytes(self._input[start : start + FRAME_BYTES])
            socket.send(frame(INPUT, self._sent, data))
            self._sent += len(data)
        if self._input_ends and not self._end_sent:
            socket.send(frame(END_OF_INPUT, 0))
            self._end_sent = True

    def _take(self, streams: Streams) -> None:
        socket = self._socket
        assert socket is not None
        before = self._got
        for kind, number, data in frames(self._inbox):
            if number > (self._sent if kind == TAKEN else LARGEST):  # a host says what it likes
                raise self._nonsense()
            if kind in (OUTPUT, ERRORS):
                fresh = data[max(0, self._got - number) :]
                self._write(streams, streams.stdout if kind == OUTPUT else streams.stderr, fresh)
                self._got = max(self._got, number + len(data))
            elif kind == TAKEN:
                del self._input[: max(0, number - self._taken)]
                self._taken = max(self._taken, number)
            elif kind == BYE:
                self.displaced = True
                raise Conflict("The session is attended from elsewhere now.", "`rmx attach` takes it back.")
            elif kind == ENDED:
                self._got = max(self._got, number)
                code, signal = map(int, data.split())
                if not (-1 <= code <= 255 and 0 <= signal < NSIG):
                    raise self._nonsense()
                self._ended = Ended(code, signal)
        if self._got != before:
            socket.send(frame(TAKEN, self._got))

    def _write(self, streams: Streams, fd: int, data: bytes) -> None:
        """As fast as it is taken; who wakes us meanwhile is heard."""
        if streams.write is not None:
            streams.write(fd, data)
            return
        view = memoryview(data if fd >= 0 else b"")
        if not view:
            return
        poll = select.poll()
        if streams.wake >= 0:
            poll.register(streams.wake, select.POLLIN)
        with _never_waiting(fd) as (out, most):
            poll.register(out, select.POLLOUT)
            while view:
                ready = dict(poll.poll())
                if streams.wake in ready:
                    self._woken(streams)
                if out in ready:
                    try:
                        view = view[os.write(out, view[:most]) :]
                    except BlockingIOError:  # a terminal may have some room, but not for the next character
                        self._wait(streams, -1, ROOM_S)
                    except OSError:
                        return  # nobody reads it any more

    # connections

    def _connect(self, streams: Streams) -> None:
        """Attend the session, again if it was attended."""
        if self._socket is not None:
            return
        since, told, begun = time.monotonic(), False, self._begin is None
        while True:
            try:
                self._open(streams)
                if told:
                    self._note("The session is attended again.")
                return
            except (Unreachable, StoreUnavailable, LimitReached, OSError) as error:
                if not begun and not isinstance(error, OSError):
                    raise
                why = error.what if isinstance(error, RmError) else "The connection to the daemon was lost."
                if time.monotonic() - since > self._patience_s:
                    raise Unreachable(f"{why} It was tried for {self._patience_s:g} s.") from None
                if not told:
                    told = True
                    self._note(f"{why} {self._meanwhile}")
                self._wait(streams, -1, PAUSE_S)

    def _wait(self, streams: Streams, fd: int, within_s: float) -> bool:
        """Until `fd` is readable: was it, in time?"""
        until_s = time.monotonic() + within_s
        poll = select.poll()
        for one in (fd, streams.wake):
            if one >= 0:
                poll.register(one, select.POLLIN)
        while (left_s := until_s - time.monotonic()) > 0:
            ready = dict(poll.poll(left_s * 1000))
            if streams.wake in ready:
                self._woken(streams)
            if fd in ready:
                return True
        return False

    def _open(self, streams: Streams) -> None:
        until_s = time.monotonic() + ALIVE_S  # a host that does not say where it is does not greet

        def heard() -> list[bytes]:
            if not (socket.pending() or self._wait(streams, socket.fileno(), until_s - time.monotonic())):
                raise Unreachable(
                    f"The host of job {self._job} does not begin the session.", "Look at that host's load."
                )
            return socket.heard()

        self._socket = socket = self._connection().upgraded("jobs", self._job, "session")
        try:
            asked: dict[str, Any] = {"session": self._name, "host": self._host}
            if self._begin is not None:
                asked["begin"] = dict(self._begin)
            socket.send(json.dumps(asked).encode(), TEXT)
            socket.send(frame(HAVE, self._got))  # `look` may say something from here on
            rest: list[bytes] = []
            while not rest:
                rest = heard()
            answer = json.loads(rest.pop(0))
            if "error" in answer:
                raise _failure(answer["error"])
            self._inbox = bytearray(b"".join(rest))
            while len(self._inbox) < HEAD.size:
                self._inbox += b"".join(heard())
            kind, far, _ = HEAD.unpack_from(self._inbox)
            if kind != HAVE or far > LARGEST:
                raise self._nonsense()
            del self._inbox[: HEAD.size]
        except BaseException:
            self._drop()
            raise
        if not self.began:  # what somebody else has said before is not ours
            self._taken = far
        self._begin, self._end_sent, self.began = None, False, True
        self._sent = max(self._taken, min(far, self._taken + len(self._input)))
        self._send_input()

    def _nonsense(self) -> RmError:
        return RmError(
            f"The host of job {self._job} says what no session says.",
            "Look at that host, or upgrade its agents: rmx playbook run agents.",
        )

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@contextmanager
def _never_waiting(fd: int) -> Iterator[tuple[int, int]]:
    """A descriptor of what `fd` leads to, and of how many bytes a write there does not wait once there is
    room. No number is small enough for a terminal: that is opened anew, if it can be. Not a master of a
    pseudo-terminal, which passes for one: what is opened there is the master of a new one."""
    own = -1
    if os.isatty(fd) and os.fstat(fd).st_rdev != MASTER:
        with suppress(OSError):
            own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    most = FRAME_BYTES
    if own < 0:
        with suppress(OSError):  # it is closed: a write says so
            most = select.PIPE_BUF if os.get_blocking(fd) else FRAME_BYTES
    try:
        yield (fd if own < 0 else own), most
    finally:
        if own >= 0:
            os.close(own)


def _failure(told: Mapping[str, Any]) -> RmError:
    return as_told(
        str(told.get("kind")), str(told.get("message")), str(told.get("hint", "")), otherwise=Conflict
    )
