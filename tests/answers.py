"""Answers of the HTTP API for tests, of which only what matters has to be said."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from rm.typed import convert

Kind = TypeVar("Kind", bound=msgspec.Struct)


def answer(kind: type[Kind], /, **said: Any) -> Kind:
    """An answer with these fields, plain or of their types; what is not said is empty, 0 or None."""
    return convert(_filled(_looked_at(kind), said), kind)


@cache
def _looked_at(kind: type[msgspec.Struct]) -> inspect.StructType:
    """To look at a type takes ten times as long as to fill it."""
    whole = inspect.type_info(kind)
    assert isinstance(whole, inspect.StructType)
    return whole


def _filled(kind: inspect.Type, said: Any) -> Any:
    if isinstance(kind, inspect.UnionType):
        within = [one for one in kind.types if isinstance(one, inspect.StructType)]
        return _filled(within[0], said) if within and isinstance(said, Mapping) else _plain(said)
    if isinstance(kind, inspect.StructType) and isinstance(said, Mapping):
        unknown = said.keys() - {field.encode_name for field in kind.fields}
        assert not unknown, f"{kind.cls.__name__} has no {', '.join(sorted(unknown))}"
        return {
            field.encode_name: _filled(field.type, said[field.encode_name])
            if field.encode_name in said
            else _empty(field.type)
            for field in kind.fields
            if field.required or field.encode_name in said
        }
    if isinstance(kind, inspect.ListType | inspect.CollectionType | inspect.VarTupleType):
        return [_filled(kind.item_type, one) for one in said]
    return _plain(said)


def _plain(said: Any) -> Any:
    return msgspec.to_builtins(said)


def _empty(kind: inspect.Type) -> Any:
    match kind:
        case inspect.UnionType():
            return (
                None
                if any(isinstance(one, inspect.NoneType) for one in kind.types)
                else _empty(kind.types[0])
            )
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StructType():
            return _filled(kind, {})
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.FloatType():
            return 0
        case inspect.StrType():
            return ""
        case inspect.DictType():
            return {}
    return []
