"""JSON and plain values as the types that they must fit, from any thread.

msgspec learns a type when it is first asked to decode into it, and notes on the class what it has learnt so
far. A second thread that decodes into the class meanwhile reads the half-made note, which ends the process by
SIGSEGV (msgspec 0.22.0). So each type is learnt, with all types in it, under one lock.
"""

from __future__ import annotations

import re
import threading
from typing import Any, TypeVar, overload

import msgspec

Kind = TypeVar("Kind")
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_learning = threading.RLock()
_learnt: set[Any] = set()


@overload
def decoder_of(kind: type[Kind]) -> msgspec.json.Decoder[Kind]: ...
@overload
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Of JSON that must fit `kind`: a class, or a union."""
    with _learning:
        return msgspec.json.Decoder(kind)


def convert(value: Any, kind: type[Kind], *, from_attributes: bool = False) -> Kind:
    """`value`, which is plain or, with `from_attributes`, has `kind`'s attributes, as a `kind`.

    Raises:
        msgspec.ValidationError: it does not fit.
    """
    if kind not in _learnt:
        decoder_of(kind)
        _learnt.add(kind)
    return msgspec.convert(value, kind, from_attributes=from_attributes)


def in_words(error: msgspec.ValidationError) -> tuple[str, str]:
    """The path of the value that does not fit, "" for the whole, and for people what is wrong with it."""
    what, _, path = str(error).partition(" - at `$")
    words = re.sub(r"`(\w+)`", lambda kind: _KINDS.get(kind[1], kind[0]), what).replace("`", "'").rstrip(".")
    return path.rstrip("`").removeprefix("."), words[:1].lower() + words[1:]
