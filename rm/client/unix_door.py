"""The ways to a daemon: what each must offer, and the one to a daemon of this machine, by its socket."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from typing import Protocol

from rm.errors import Forbidden, RmError, Unreachable


class UnixConnection(http.client.HTTPConnection):
    """Connected when it is made."""

    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("rm", timeout=timeout_s)
        self.path = path
        self.connect()

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


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
    """A daemon of this machine, by its socket."""

    headers: Mapping[str, str] = {}

    def __init__(self, path: str) -> None:
        self._path = path

    def connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        try:
            return UnixConnection(self._path, timeout_s)
        except PermissionError:
            raise Forbidden(
                f"You may not connect to {self._path}.", "It belongs to another user's daemon."
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
