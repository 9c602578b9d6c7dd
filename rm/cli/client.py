"""The HTTP client over the daemon's Unix socket: standard library only, cheap to import."""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from rm import errors, paths
from rm.errors import ConfigError, Forbidden, RmError, Unreachable

TIMEOUT_S = 60.0
CHUNK_BYTES = 65_536


def find_socket(socket_flag: str | None, config_flag: str | None) -> str:
    """--socket, RM_DAEMON__SOCKET, [daemon].socket of rm.toml, the user's daemon, the system's.

    Reads only this one key: the daemon checks the whole file, a client need not.
    """
    named = socket_flag or os.environ.get("RM_DAEMON__SOCKET")
    if named:
        return named
    euid = paths.effective_user()
    for file in [config_flag] if config_flag else paths.config_files(os.environ, euid):
        if (config_flag or os.environ.get("RM_CONFIG") or os.path.exists(file)) and (
            found := _configured(file)
        ):
            return found
    own = paths.socket_path(os.environ, euid)
    return own if euid == 0 or os.path.exists(own) else paths.SYSTEM_SOCKET


def _configured(file: str) -> str:
    import tomllib

    try:
        with open(file, "rb") as handle:
            section = tomllib.load(handle).get("daemon", {})
    except OSError as error:
        raise ConfigError(f"The configuration file {file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {file} is not valid TOML: {error}.") from None
    found = section.get("socket", "") if isinstance(section, dict) else ""
    return os.path.expanduser(found) if isinstance(found, str) else ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("rm", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """One kept-alive connection. Every failure is an RmError: the daemon's own, or Unreachable."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self._connection: _UnixConnection | None = None

    def get(self, *path: str | int, _timeout_s: float = TIMEOUT_S, **query: Any) -> dict[str, Any]:
        return self._call("GET", path, query, None, _timeout_s)

    def post(
        self, *path: str | int, body: Mapping[str, Any] | None = None, timeout_s: float | None = 600.0
    ) -> dict[str, Any]:
        # measuring the network takes long; a submission waits for its commit
        return self._call("POST", path, {}, body or {}, timeout_s)

    def delete(self, *path: str | int, **query: Any) -> dict[str, Any]:
        return self._call("DELETE", path, query, None, TIMEOUT_S)

    def stream(self, *path: str | int, **query: Any) -> Iterator[bytes]:
        """The body as it comes; no time limit between its parts."""
        response = self._request("GET", path, query, None, None)
        if response.status >= 400:
            raise _failure(response.status, response.read())
        try:
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException):
            raise Unreachable("The daemon closed the connection in the middle of its answer.") from None
        finally:
            self.close()

    def open(self) -> None:
        """Connect, unless connected: a failure after this is one of a request that may have been heard."""
        self._open(TIMEOUT_S)

    def abort(self) -> None:
        """End the request that another thread waits for."""
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self,
        method: str,
        path: tuple[str | int, ...],
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
        timeout_s: float | None,
    ) -> dict[str, Any]:
        response = self._request(method, path, query, body, timeout_s)
        try:
            data = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise Unreachable(
                "The daemon closed the connection before it answered.",
                "Look whether it happened before repeating it.",
            ) from None
        if response.status >= 400:
            raise _failure(response.status, data)
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"What listens on {self.socket_path} does not speak rm's protocol.")
        return answer

    def _request(
        self,
        method: str,
        path: tuple[str | int, ...],
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
        timeout_s: float | None,
    ) -> http.client.HTTPResponse:
        target = "/v1/" + "/".join(quote(str(part), safe="") for part in path)
        present = {
            key: value
            for key, value in query.items()
            if value is not None and value is not False and value != ""
        }
        if present:
            target += "?" + urlencode({key: 1 if value is True else value for key, value in present.items()})
        payload = None if body is None else json.dumps(body).encode()
        connection = self._open(timeout_s)
        try:
            connection.request(method, target, payload, {"Content-Type": "application/json"})
            return connection.getresponse()
        except TimeoutError:
            self.close()
            raise Unreachable(
                f"The daemon did not answer within {timeout_s:g} s.", "`rmx status` asks again."
            ) from None
        except (OSError, http.client.HTTPException):
            self.close()
            raise Unreachable(
                "The daemon closed the connection before it answered.",
                "Look whether it happened before repeating it.",
            ) from None

    def _open(self, timeout_s: float | None) -> _UnixConnection:
        if self._connection is not None and self._connection.sock is not None:
            if not _ended(self._connection.sock):
                self._connection.sock.settimeout(timeout_s)
                return self._connection
            self.close()
        connection = _UnixConnection(self.socket_path, timeout_s)
        try:
            connection.connect()
        except PermissionError:
            raise Forbidden(
                f"You may not connect to {self.socket_path}.", "It belongs to another user's daemon."
            ) from None
        except OSError as error:
            why = (
                ""
                if isinstance(error, FileNotFoundError | ConnectionRefusedError)
                else f" ({error.strerror or error})"
            )
            raise Unreachable(
                f"No daemon listens on {self.socket_path}{why}.",
                "Start one with `rmx daemon`, or name its socket with --socket or RM_DAEMON__SOCKET.",
            ) from None
        self._connection = connection
        return connection


def _ended(sock: socket.socket) -> bool:
    """Has the daemon closed the idle connection? It says nothing that was not asked for."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _failure(status: int, body: bytes) -> RmError:
    """The daemon's error as the class it had there, so that the exit code is the same."""
    try:
        told = json.loads(body)["error"]
        kind, message, hint = told["kind"], told["message"], told["hint"]
    except (ValueError, KeyError, TypeError):
        kind, message, hint = "RmError", f"The daemon answered with status {status}.", ""
    found = getattr(errors, str(kind), RmError)
    return (found if isinstance(found, type) and issubclass(found, RmError) else RmError)(message, hint)
