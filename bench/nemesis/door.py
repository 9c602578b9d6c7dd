"""Requests to whichever daemon answers, with no retries but those written here: they would hide outages."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rm.cli.unix_door import UnixConnection

Answer = dict[str, Any]


class NoAnswer(Exception):
    """No daemon answered; it may have heard."""


class Refused(Exception):
    """A daemon said no: it will not do it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def ask(
    socket: str, method: str, path: str, body: Mapping[str, Any] | None = None, key: str = "",
    timeout_s: float = 5.0,
) -> Answer:  # fmt: skip
    """What the daemon at `socket` answers.

    Raises:
        Refused: it said no.
        NoAnswer: there is none, it does not answer in time, or it cannot now (503).
    """
    data = b""
    try:
        connection = UnixConnection(socket, timeout_s)
        try:
            headers = {"Content-Type": "application/json"}
            if key:
                headers["Idempotency-Key"] = key
            payload = json.dumps(body).encode() if body is not None else None
            connection.request(method, f"/v1/{path}", payload, headers)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(str(error)) from error
    if response.status in (429, 502, 503):
        raise NoAnswer(f"status {response.status}")
    if response.status >= 400:
        raise Refused(response.status, data.decode(errors="replace"))
    found: Answer = json.loads(data)
    return found


class Doors:
    """The daemons' sockets; the one that answered last is asked first."""

    def __init__(self, sockets: Sequence[str]) -> None:
        self._sockets = list(sockets)

    @property
    def newest(self) -> str:
        """The socket that answered last."""
        return self._sockets[0]

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **more: Any) -> Answer:
        """Raises NoAnswer when none does, and Refused."""
        why = ""
        for socket in list(self._sockets):
            try:
                answer = ask(socket, method, path, body, **more)
            except NoAnswer as error:
                why = str(error)
                continue
            self._sockets.sort(key=lambda other: other != socket)
            return answer
        raise NoAnswer(why)

    def stream(self, path: str, timeout_s: float = 20.0) -> bytes:
        """The body of what is no JSON, from the daemon that answered last."""
        try:
            connection = UnixConnection(self.newest, timeout_s)
            try:
                connection.request("GET", f"/v1/{path}")
                response = connection.getresponse()
                data = response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(str(error)) from error
        if response.status >= 400:
            raise Refused(response.status, data.decode(errors="replace"))
        return data
