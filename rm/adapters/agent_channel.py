"""One conversation with one agent: JSON lines over an SSH channel, many requests under way at once."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import msgspec

from rm.adapters import ssh
from rm.adapters.ssh_settings import SshSettings
from rm.core.host import Host
from rm.errors import RmError, Unreachable

log = logging.getLogger("rm.agent")

PROTOCOL = 1
SMALL_BYTES = 16384  # a line up to this fits a socket that says it is writable
HELLO_S = 20.0
EXIT_S = 2.0
CANCEL_S = 10.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class AgentError(RmError):
    """The agent refused an operation; `code` as in docs/agent-protocol.md, the message its sentence."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code


class NotConnected(Unreachable):
    """Nothing was sent: the operation has certainly not been carried out."""

    code = "not-connected"


class AgentChannel:
    """Opened once, used by any thread, dead for ever when it is lost."""

    def __init__(self, host: Host, settings: SshSettings) -> None:
        self.host = host
        self.hello: dict[str, Any] = {}
        self._settings = settings
        self._connection: Any = None
        self._channel: Any = None
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[float, str, Future[dict[str, Any]]]] = {}
        self._number = 0
        self._queue: deque[bytes] = deque()
        self._pumping = False
        self._lost = ""
        self._text = b""
        self._errors = b""

    def open(self) -> None:
        """Connect, start the agent and read its hello.

        Raises:
            Unreachable: not reached, no agent there, or one of another protocol.
        """
        connection = ssh.connect(self.host, self._settings)
        with self._lock:
            self._connection, given_up = connection, self._lost
        if given_up:  # closed while it was being opened: nobody else would close the connection
            connection.close()
            raise Unreachable(given_up)
        self._channel = ssh.open_channel(self._connection, ssh.agent_command(self.host, self._settings))
        self._channel.settimeout(HELLO_S)
        for message in self._messages():
            if message.get("event") == "hello":
                self.hello = message
                break
        else:
            raise self._no_agent()
        self._channel.settimeout(None)
        if self.hello.get("protocol") != PROTOCOL:
            raise Unreachable(
                f"The agent on {self.host.name} (version {self.hello.get('version')}) speaks protocol "
                f"{self.hello.get('protocol')}, this daemon {PROTOCOL}.",
                "Run the agents playbook on it.",
            )

    def notifications(self) -> Iterator[dict[str, Any]]:
        """Listen: replies go to their futures, notifications are yielded; ends by raising Unreachable."""
        for message in self._messages():
            if "event" in message:
                yield message
            else:
                self._reply(message)
        raise Unreachable(self._end_sentence())

    def call(self, op: str, timeout_s: float, args: dict[str, Any]) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._lost:
                future.set_exception(NotConnected(self._lost))
                return future
            self._number += 1
            number = self._number
            self._pending[number] = (time.monotonic() + timeout_s, op, future)
            line = _encode({"id": number, "op": op, **args}) + b"\n"
            direct = not self._queue and not self._pumping and len(line) <= SMALL_BYTES
            if not (direct and ssh.writable_now(self._connection, self._channel)):
                self._queue.append(line)
                if not self._pumping:
                    self._pumping = True
                    threading.Thread(target=self._pump, name=f"pump-{self.host.name}", daemon=True).start()
                return future
            # in the lock, so that lines keep their order; it does not wait, see `writable_now`
            self._write(line)
        return future

    def cancel(self, future: Future[dict[str, Any]]) -> None:
        """Ask the agent to end a slow operation whose result nobody waits for any more."""
        with self._lock:
            found = [number for number, (_, _, one) in self._pending.items() if one is future]
        for number in found:
            self.call("cancel", CANCEL_S, {"request": number})

    def expire(self, now: float) -> None:
        """Fail the calls whose time is over (monotonic seconds)."""
        with self._lock:
            late = [number for number, (until, _, _) in self._pending.items() if until <= now]
            calls = [self._pending.pop(number) for number in late]
        for _, op, future in calls:
            _fail(
                future,
                Unreachable(f"{self.host.name} did not answer {op} in time; whether it was done is unknown."),
            )

    def close(self) -> None:
        """Give up: every call under way fails with an unknown outcome."""
        with self._lock:
            self._lost = self._lost or f"The channel to {self.host.name} is closed."
            pending, self._pending = self._pending, {}
            self._queue.clear()
        if self._connection is not None:
            with suppress(Exception):  # paramiko raises all sorts of things on a dead transport
                self._connection.close()
        for _, op, future in pending.values():
            _fail(
                future,
                Unreachable(
                    f"The channel to {self.host.name} was lost during {op}; whether it was done is unknown."
                ),
            )

    def _write(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except Exception as error:  # a lost channel; the reader meets it too and ends the conversation
            log.debug("writing to %s: %r", self.host.name, error)

    def _pump(self) -> None:
        """Write what had to wait, in order, then end."""
        while True:
            with self._lock:
                if not self._queue or self._lost:
                    self._pumping = False
                    return
                data = b"".join(self._queue)
                self._queue.clear()
            self._write(data)

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Decoded lines until the end of the channel."""
        channel = self._channel
        while True:
            try:
                data = channel.recv(1 << 18)
            except TimeoutError:
                return
            except OSError:
                return
            if channel.recv_stderr_ready():
                self._take_errors()
            if not data:
                return
            *lines, self._text = (self._text + data).split(b"\n")
            for line in lines:
                if not line.strip():
                    continue
                try:
                    message = _decode(line)
                except msgspec.DecodeError:
                    message = None
                if isinstance(message, dict):
                    yield message
                else:
                    # a login script that prints something: not ours, but worth knowing
                    log.warning("%s said what is no JSON object: %r", self.host.name, line[:200])

    def _reply(self, message: dict[str, Any]) -> None:
        with self._lock:
            call = self._pending.pop(message.get("id", 0), None)
        if call is None:
            return  # expired
        future = call[2]
        if message.get("ok"):
            with suppress(InvalidStateError):
                future.set_result(message.get("result", {}))
        else:
            _fail(future, AgentError(str(message.get("code", "")), str(message.get("error", ""))))

    def _take_errors(self) -> None:
        text = self._channel.recv_stderr(65536)
        self._errors = (self._errors + text)[-4096:]
        log.info("%s: %s", self.host.name, text.decode(errors="replace").rstrip())

    def _last_words(self) -> str:
        while self._channel.recv_stderr_ready():
            self._take_errors()
        lines = self._errors.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _no_agent(self) -> Unreachable:
        self._channel.status_event.wait(EXIT_S)  # the exit status may come after the end of the output
        code = self._channel.recv_exit_status() if self._channel.exit_status_ready() else -1
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
        words = self._last_words()
        if self._channel.exit_status_ready() and self._channel.recv_exit_status() >= 0:
            return f"The agent on {self.host.name} ended{': ' + words if words else ''}."
        return f"The connection to {self.host.name} was lost: it is down, frozen or cut off."


def _fail(future: Future[dict[str, Any]], error: Exception) -> None:
    with suppress(InvalidStateError):
        future.set_exception(error)
