"""Messages as lines of JSON, and lines as messages."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from rm.errors import Unreachable
from rm.protocol.codes import AgentError, Code, NotSent
from rm.protocol.notifications import Unasked
from rm.protocol.request import Answer, Request, answer_of, name_of
from rm.typed import decoder_of

PROTOCOL = 1
LINE_BYTES = 8 << 20  # no line is longer, in either direction
TOLD_MAX = 200  # characters of a host's words in a sentence

_encode = msgspec.json.Encoder().encode
Kind = TypeVar("Kind")


class Misfit(Unreachable):
    """What the host said does not fit the protocol; what it did is unknown."""


class Line(Struct, frozen=True):
    """What every line of an agent has: a reply has `ok`, a notification has `event`."""

    id: int | None = None
    ok: bool | None = None
    event: str | None = None
    result: Raw = Raw(b"{}")


class Refusal(Struct, frozen=True):
    """What a reply has whose `ok` is false."""

    code: Code = Code.UNKNOWN
    error: str = ""


_line = decoder_of(Line)
_refusal = decoder_of(Refusal)
_unasked = decoder_of(Unasked)


@cache
def _decoder(kind: type[Kind]) -> msgspec.json.Decoder[Kind]:
    return decoder_of(kind)


def request_line(number: int, request: Request[Any]) -> bytes:
    """The request with its id, as a line with its end.

    Raises:
        NotSent: it does not fit the protocol, or is too long.
    """
    op = name_of(type(request))
    try:
        text = _encode(request)
        _decoder(type(request)).decode(text)  # the constructor checks no range
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotSent(Code.BAD_REQUEST, f"The request '{op}' cannot be sent: {shown(error)}.") from None
    line = b'{"id":%d,%s\n' % (number, text[1:])
    if len(line) > LINE_BYTES:
        raise NotSent(
            Code.BAD_REQUEST,
            f"The request '{op}' has {len(line)} bytes, and an agent takes {LINE_BYTES}: "
            "script, arguments and environment together are too long.",
        )
    return line


def read_line(text: bytes) -> Line | None:
    """A reply or a notification; None for a line that is not a JSON object, as a login script may print."""
    try:
        return _line.decode(text)
    except msgspec.ValidationError as error:
        if not text.lstrip().startswith(b"{"):
            return None
        raise Misfit(f"its line does not fit: {shown(error)}") from None
    except (msgspec.DecodeError, UnicodeError):
        return None
    except RecursionError:
        raise Misfit("its line is nested too deeply") from None


def read_notification(event: str, text: bytes) -> Unasked:
    """Raises Misfit."""
    message: Unasked = _read(_unasked, text, f"its notification '{shown(event)}'")
    return message


def read_refusal(text: bytes) -> AgentError:
    """Raises Misfit."""
    refusal: Refusal = _read(_refusal, text, "its refusal")
    return AgentError(refusal.code, refusal.error)


def read_answer(request: type[Request[Answer]], text: bytes | Raw) -> Answer:
    """Raises Misfit."""
    answer: Answer = _read(_decoder(answer_of(request)), text, f"its answer to '{name_of(request)}'")
    return answer


def _read(decoder: msgspec.json.Decoder[Kind], text: bytes | Raw, what: str) -> Kind:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Misfit(f"{what} does not fit: {shown(error)}") from None
    except RecursionError:
        raise Misfit(f"{what} is nested too deeply") from None


def shown(words: object) -> str:
    """A host's words for a sentence: without control characters, and not too many."""
    text = str(words)
    return printable(text if len(text) <= TOLD_MAX else text[: TOLD_MAX - 1] + "…")


def printable(text: str) -> str:
    """One line without anything that steers a terminal or turns the text around."""
    return "".join(char if char.isprintable() else "?" for char in text)
