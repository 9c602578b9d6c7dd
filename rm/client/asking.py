"""Requests and answers of the HTTP API as the types of `rm.api`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec

from rm.client.connection import POST_TIMEOUT_S, Connection
from rm.errors import Unreachable, UsageError
from rm.typed import decoder_of

Kind = TypeVar("Kind", bound=msgspec.Struct)
Read = TypeVar("Read", covariant=True)
_encode = msgspec.json.Encoder().encode


class Reader(Protocol[Read]):
    def decode(self, data: bytes, /) -> Read: ...


@cache
def _decoder(kind: type[Kind]) -> Reader[Kind]:
    """Its own, where it has one: what is long is read in another way than by its fields."""
    reader = getattr(kind, "reader", None)
    return decoder_of(kind) if reader is None else reader()


class Asking:
    """What the client and its topics share: one connection, and answers of a type.

    Raises:
        RmError: from each method: the daemon's own error, or Unreachable.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def get(
        self, kind: type[Kind], *path: str | int, answer_within_s: float | None = 0, **query: Any
    ) -> Kind:
        """`answer_within_s`: None is endless, 0 the connection's own."""
        return self._read(kind, self.connection.ask("GET", path, query, timeout_s=answer_within_s))

    def post(
        self,
        kind: type[Kind],
        *path: str | int,
        body: msgspec.Struct | Mapping[str, Any] | None = None,
        answer_within_s: float | None = POST_TIMEOUT_S,
        **query: Any,
    ) -> Kind:
        try:
            sent = b"{}" if body is None else _encode(body)
        except UnicodeEncodeError:
            raise UsageError(
                "The request has text that is not UTF-8, and was not sent.",
                "Use UTF-8 in names and contents.",
            ) from None
        return self._read(kind, self.connection.ask("POST", path, query, sent, answer_within_s))

    def delete(self, kind: type[Kind], *path: str | int, **query: Any) -> Kind:
        return self._read(kind, self.connection.ask("DELETE", path, query))

    def _read(self, kind: type[Kind], data: bytes) -> Kind:
        try:
            answer: Kind = _decoder(kind).decode(data)
        except msgspec.ValidationError as error:
            raise Unreachable(
                f"The answer of the daemon at {self.connection.address} does not fit this rm: {error}.",
                "Use one version on both sides: `rmx --version` says this one.",
            ) from None
        except (msgspec.DecodeError, RecursionError):
            raise self.connection.stranger() from None
        return answer
