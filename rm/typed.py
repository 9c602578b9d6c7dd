"""JSON and plain values as the types that they must fit, from any thread.

msgspec learns a type when it is first asked to decode into it, and notes on the class what it has learnt so
far. A second thread that decodes into the class meanwhile reads the half-made note, which ends the process by
SIGSEGV (msgspec 0.22.0). So each type is learnt, with all types in it, under one lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

Kind = TypeVar("Kind")
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
