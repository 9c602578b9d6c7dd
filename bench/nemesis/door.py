"""Requests to whichever daemon answers, with no retries but those written here: they would hide outages."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rm.client.unix_door import UnixConnection

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
    """What the daemon at `socket` answers; raises as `fetch`."""
    headers = {"Idempotency-Key": key} if key else {}
    found: Answer = json.loads(fetch(socket, method, path, body, headers, timeout_s))
    return found


def fetch(
    socket: str, method: str, path: str, body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None, timeout_s: float = 20.0,
) -> bytes:  # fmt: skip
    """The body of the answer of the daemon at `socket`.

    Raises:
        Refused: it said no.
        NoAnswer: there is none, it does not answer in time, or it cannot now (503).
    """
    payload = json.dumps(body).encode() if body is not None else None
    try:
        connection = UnixConnection(socket, timeout_s)
        try:
            own = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, f"/v1/{path}", payload, own)
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
    return data


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

    def fetch(self, path: str) -> bytes:
        """The body of what is not JSON, from the daemon that answered last."""
        return fetch(self.newest, "GET", path)
