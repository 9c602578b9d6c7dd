"""One conversation with one agent: JSON lines over an SSH channel, many requests under way at once."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from rm.adapters.hosts.commands import agent_command
from rm.adapters.hosts.settings import LOGIN_LINES, SshSettings
from rm.adapters.hosts.stderr import StandardError
from rm.core.model.host import Host
from rm.errors import Unreachable
from rm.protocol.attempts import Cancel, Forget, Renew
from rm.protocol.codes import AgentError, NotConnected
from rm.protocol.latencybg import OrderLatencybg
from rm.protocol.line import (
    LINE_BYTES,
    PROTOCOL,
    Line,
    Misfit,
    read_answer,
    read_line,
    read_notification,
    read_refusal,
    request_line,
    shown,
)
from rm.protocol.notifications import Hello, Unasked
from rm.protocol.request import Answer, Ordered, Request, name_of

log = logging.getLogger("rm.agent")

HELLO_S = 20.0
EXIT_S = 2.0
CANCEL_S = 10.0
IDLE_S = 2.0  # until a thread that has nothing to write ends


class Call(NamedTuple):
    """A request under way. `until`: monotonic seconds."""

    until: float
    request: type[Request[Any]]
    future: Future[Any]


class AgentChannel:
    """Opened once, used by any thread, dead for ever when it is lost."""

    def __init__(self, host: Host, settings: SshSettings, cluster: str = "") -> None:
        self.host = host
        self._cluster = cluster  # the one who gives orders
        self.hello = Hello(version="", protocol=0)
        self.least_epoch = 0  # of orders: see `Fleet.raise_epoch`
        self.heard = 0  # how often something came
        self._settings = settings
        self._connection: Any = None
        self._channel: Any = None
        self._lock = threading.Lock()  # never held while the host is waited for
        self._some = threading.Condition(self._lock)  # something is to be written, or nothing any more
        self._pending: dict[int, Call] = {}
        self._number = 0
        self._queue: deque[tuple[int, bytes]] = deque()  # lines, by the numbers of their calls
        self._writing = False
        self._lost = ""
        self._given_up = ""  # why we closed it, when the host is to blame
        self._text = bytearray()  # of a line whose end has not come
        self._errors = StandardError(host.name)

    def open(self) -> None:
        """Connect, start the agent and read its hello.

        Raises:
            Unreachable: not reached, no agent there, or one of another protocol; a Misfit when what it
                says is not a hello.
        """
        from rm.adapters.hosts import ssh  # here: a daemon starts without it

        connection = ssh.connect(self.host, self._settings)
        with self._lock:
            self._connection, given_up = connection, self._lost
        if given_up:  # closed while it was being opened: nobody else would close the connection
            connection.close()
            raise Unreachable(given_up)
        self._channel = ssh.open_channel(self._connection, agent_command(self.host, self._settings))
        self._channel.settimeout(HELLO_S)
        hello = self._greeting()
        if hello is None:
            raise self._no_agent()
        self.hello = hello
        self._channel.settimeout(None)
        if hello.protocol != PROTOCOL:
            raise Unreachable(
                f"The agent on {self.host.name} (version {shown(hello.version)}) speaks protocol "
                f"{hello.protocol}, this daemon {PROTOCOL}.",
                "Run the agents playbook on it.",
            )

    def _greeting(self) -> Hello | None:
        """The first message; None when none comes."""
        until = time.monotonic() + HELLO_S
        for others, text in enumerate(self._lines(), start=1):
            line = read_line(text)
            if line is not None and line.event == "hello":
                hello = read_notification(line.event, text)
                assert isinstance(hello, Hello)
                return hello
            # a login script that prints something: not ours, but worth knowing
            log.warning("%s said before its hello: %s", self.host.name, shown(text.decode(errors="replace")))
            if others >= LOGIN_LINES or time.monotonic() > until:
                raise Unreachable(
                    f"{self.host.name} sends output, but its agent has not said hello.",
                    f"A login script may write to standard output for {self.host.login}.",
                )
        return None

    def notifications(self) -> Iterator[Unasked]:
        """Listen: replies go to their futures, notifications are yielded.

        Raises:
            Unreachable: the end; a Misfit when the host said what does not fit the protocol.
        """
        for text in self._lines():
            line = read_line(text)
            if line is None:
                raise Misfit(f"its line is not a JSON object: {shown(text.decode(errors='replace'))}")
            if line.event is not None:
                yield read_notification(line.event, text)
            else:
                self._reply(line, text)
        raise Unreachable(self._end_sentence())

    def call(self, request: Request[Answer], timeout_s: float) -> Future[Answer]:
        future: Future[Answer] = Future()
        with self._lock:
            self._number += 1
            number = self._number
        if isinstance(request, Ordered | Renew | Forget | OrderLatencybg):
            epoch = max(request.epoch, self.least_epoch)
            request = msgspec.structs.replace(request, epoch=epoch, cluster=self._cluster)
        try:
            line = request_line(number, request)
        except AgentError as error:
            future.set_exception(error)
            return future
        with self._lock:
            if self._lost:
                future.set_exception(NotConnected(self._lost))
                return future
            self._pending[number] = Call(time.monotonic() + timeout_s, type(request), future)
            # Not here: what the host does not take in keeps whoever writes it waiting, the leader as well.
            self._queue.append((number, line))
            if self._writing:
                self._some.notify()
            else:
                threading.Thread(target=self._write, name=f"write-{self.host.name}", daemon=True).start()
                self._writing = True
        return future

    def beside(self, command: str, window_bytes: int) -> Any:
        """Another conversation over the same connection, with a program of its own: a `paramiko.Channel`."""
        from rm.adapters.hosts import ssh

        return ssh.open_channel(self._connection, command, window_bytes)

    def cancel(self, future: Future[Any]) -> None:
        """Ask the agent to end a slow operation whose result nobody waits for any more."""
        with self._lock:
            found = [number for number, call in self._pending.items() if call.future is future]
        for number in found:
            self.call(Cancel(request=number), CANCEL_S)

    def expire(self, now: float) -> None:
        """Fail the calls whose time is over (monotonic seconds)."""
        with self._lock:
            late = [number for number, call in self._pending.items() if call.until <= now]
            calls = [self._pending.pop(number) for number in late]
            if late and self._queue:  # the host takes nothing in: what nobody waits for is not kept for it
                kept = self._pending.keys()
                self._queue = deque(one for one in self._queue if one[0] in kept)
        for call in calls:
            op = name_of(call.request)
            _fail(
                call.future,
                Unreachable(f"{self.host.name} did not answer {op} in time; whether it was done is unknown."),
            )

    @property
    def unread(self) -> bool:
        """Has something arrived that was not looked at yet?"""
        return self._channel is not None and bool(self._channel.recv_ready())

    def close(self, why: str = "") -> None:
        """Give up: every call under way fails with an unknown outcome, for the reason `why`."""
        with self._lock:
            self._given_up = self._given_up or why
            self._lost = self._lost or why or f"The channel to {self.host.name} is closed."
            pending, self._pending = self._pending, {}
            self._queue.clear()
            self._some.notify()
        if self._connection is not None:
            with suppress(Exception):  # paramiko raises all sorts of things on a dead transport
                self._connection.close()
        for call in pending.values():
            _fail(
                call.future,
                Unreachable(
                    f"The channel to {self.host.name} was lost during {name_of(call.request)}; "
                    "whether it was done is unknown."
                ),
            )

    def _write(self) -> None:
        """Write the lines of the queue in their order; ends when none has come for a while."""
        while True:
            with self._lock:
                if not self._queue and not self._lost:
                    self._some.wait(IDLE_S)
                if not self._queue or self._lost:
                    self._writing = False
                    return
                data = b"".join(line for _, line in self._queue)
                self._queue.clear()
            try:
                self._channel.sendall(data)
            except Exception as error:  # a lost channel; the reader meets it too and ends the conversation
                log.debug("writing to %s: %r", self.host.name, error)

    def _lines(self) -> Iterator[bytes]:
        """What the agent says, line by line, until the end of the channel; a line has an end soon."""
        channel = self._channel
        while True:
            try:
                data = channel.recv(1 << 18)
            except TimeoutError:
                return
            except OSError:
                return
            self.heard += 1
            if channel.recv_stderr_ready():
                self._errors.take(channel.recv_stderr(65536))
            if not data:
                return
            *lines, rest = data.split(b"\n")
            if lines:
                lines[0] = bytes(self._text) + lines[0]
                self._text = bytearray(rest)
            else:
                self._text += rest
            if len(self._text) > LINE_BYTES:
                raise Misfit(f"its line is longer than {LINE_BYTES} bytes")
            for line in lines:
                if line.strip():
                    yield line

    def _reply(self, line: Line, text: bytes) -> None:
        with self._lock:
            call = self._pending.pop(line.id, None) if line.id is not None else None
        if call is None:
            return  # expired
        try:
            if not line.ok:
                _fail(call.future, read_refusal(text))
                return
            answer = read_answer(call.request, line.result)
        except Misfit as error:
            _fail(call.future, error)
            raise
        with suppress(InvalidStateError):
            call.future.set_result(answer)

    def _last_words(self) -> str:
        while self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(65536)
            if not data:
                break
            self._errors.take(data)
        self._errors.end()
        return self._errors.last.rstrip(".")  # a sentence, maybe: it becomes a part of one

    def _exit_code(self) -> int:
        """Of the agent's program; -1: it has none, or its end is not known."""
        self._channel.status_event.wait(EXIT_S)  # it may come after the end of the output
        return int(self._channel.recv_exit_status()) if self._channel.exit_status_ready() else -1

    def _no_agent(self) -> Unreachable:
        code = self._exit_code()
        words = self._last_words()
        if code < 0 and not self._channel.closed and not words:
            return Unreachable(f"The agent on {self.host.name} says nothing.", "Look at the host's load.")
        if code < 0:
            return Unreachable(self._end_sentence())
        return Unreachable(
            f"There is no working agent on {self.host.name} (exit code {code}): {words or 'no message'}.",
            f"Deploy it: rmx playbook run agents --limit {self.host.name}",
        )

    def _end_sentence(self) -> str:
        from rm.adapters.hosts.bounded_transport import too_much

        if self._given_up:
            return self._given_up
        code, words = self._exit_code(), self._last_words()
        if code >= 0 or self._channel.eof_received:  # sshd says so, and that a signal did it only by no code
            how = "ended" if code >= 0 else "was ended by a signal"
            return f"The agent on {self.host.name} {how}{': ' + words if words else ''}."
        if why := too_much(self._channel.get_transport()):
            return f"The connection to {self.host.name} was ended: {why}."
        return f"The connection to {self.host.name} was lost: it is down, frozen or cut off."


def _fail(future: Future[Any], error: Exception) -> None:
    with suppress(InvalidStateError):
        future.set_exception(error)
