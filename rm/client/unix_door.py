"""The ways to a daemon: what each must offer, and the one to a daemon of this machine, by its socket."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Mapping
from typing import Protocol

from rm.errors import Forbidden, RmError, Unreachable
from rm.socket_peer import peer_ids


class UnixConnection(http.client.HTTPConnection):
    """Connected when it is made."""

    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("rm", timeout=timeout_s)
        self.path = path
        self.connect()

    def connect(self) -> None:
        """Where very many connect, the kernel lets this one wait for its turn: that it does only for a socket
        that blocks, which has no timeout of Python's."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            patience_s = 0.0 if self.timeout is None else max(0.001, self.timeout)  # 0 = endless
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time(patience_s))
            self.sock.connect(self.path)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time(0.0))
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(self.timeout)


def _time(seconds: float) -> bytes:
    """struct timeval, as socket(7) has it."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))


class Door(Protocol):
    """One way to the daemon."""

    headers: Mapping[str, str]

    def connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """A connected one; Unreachable or Forbidden with a sentence."""
        ...

    def explain(self) -> RmError | None:
        """Why the newest connection was closed without an answer, where the door knows."""
        ...


class UnixDoor:
    """A daemon of this machine, by its socket; `uids` are the users who listened there."""

    headers: Mapping[str, str] = {}

    def __init__(self, path: str) -> None:
        self._path = path
        self.uids: set[int] = set()

    def connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        try:
            made = UnixConnection(self._path, timeout_s)
            self.uids.add(peer_ids(made.sock)[1])
            return made
        except PermissionError:
            raise Forbidden(
                f"You may not connect to {self._path}.", "It belongs to another user's daemon."
            ) from None
        except BlockingIOError:
            raise Unreachable(
                f"The daemon on {self._path} took no connection within {timeout_s:g} s: very many come.",
                "Try again later.",
            ) from None
        except OSError as error:
            why = (
                ""
                if isinstance(error, FileNotFoundError | ConnectionRefusedError)
                else f" ({error.strerror or error})"
            )
            raise Unreachable(
                f"No daemon listens on {self._path}{why}.",
                "Start one with `rmx daemon`, or name its socket with --socket or RM_DAEMON__SOCKET.",
            ) from None

    def explain(self) -> RmError | None:
        return None
