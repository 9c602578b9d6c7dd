"""The routes and types as tables in Markdown: the generated part of docs/http-api.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import inspect as types

from rm.api.answer import Answer, Request
from rm.api.routes import ROUTES, Route, Who

PLAIN = {
    types.StrType: "text", types.IntType: "int", types.FloatType: "number", types.BoolType: "bool",
    types.NoneType: "null", types.AnyType: "anything",
}  # fmt: skip


def markdown(routes: Sequence[Route] = ROUTES) -> str:
    """Both tables, without a line end."""
    rows = ["| request | who | body | answer | |", "|---|---|---|---|---|"]
    for route in routes:
        answer = route.answer if isinstance(route.answer, str) else f"`{route.answer.__name__}`"
        status = f", {route.status}" if route.status != 200 else ""
        body = f"`{route.body.__name__}`" if route.body else ""
        rows.append(
            f"| `{route.method} {route.path}{_query(route)}` | {_who(route)} | {body} | {answer}{status} "
            f"| {route.meaning}{_meanings(route)} |"
        )
    named = [kind for route in routes for kind in (route.body, route.answer) if inspect.isclass(kind)]
    rows += ["", "| type | fields |", "|---|---|"]
    rows += [_type_row(kind) for kind in _structs(dict.fromkeys(named))]
    return "\n".join(rows)


def _query(route: Route) -> str:
    return "?" + "&".join(f"{p.name}=" for p in route.query) if route.query else ""


def _meanings(route: Route) -> str:
    told = [
        f"`{p.name}`: {p.meaning}" + (f", {p.usual} if left out" if p.usual else "")
        for p in (*route.query, *route.headers)
    ]
    return f" {'; '.join(told)}." if told else ""


def _structs(kinds: dict[type[Any], None]) -> Iterator[type[Any]]:
    """These and all that they are made of, each once, in the order in which a reader meets them."""
    seen: dict[type[Any], None] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop(0)
        if kind in seen:
            continue
        seen[kind] = None
        told = types.type_info(kind)
        assert isinstance(told, types.StructType)
        inner = [struct for field in told.fields for struct in _within(field.type)]
        waiting = inner + waiting
        yield kind


def _within(kind: types.Type) -> list[type[Any]]:
    if isinstance(kind, types.StructType):
        return [kind.cls]
    if isinstance(kind, types.UnionType):
        return [struct for one in kind.types for struct in _within(one)]
    if isinstance(kind, types.CollectionType):
        return _within(kind.item_type)
    if isinstance(kind, types.DictType):
        return _within(kind.value_type)
    return []


def _type_row(kind: type[Any]) -> str:
    told = types.type_info(kind)
    assert isinstance(told, types.StructType)
    base = kind.__mro__[1]
    above = types.type_info(base) if base is not msgspec.Struct else None
    known = above.fields if isinstance(above, types.StructType) else ()
    new = [_field(field) for field in told.fields if field not in known]
    fields = ", ".join([f"…{base.__name__}", *new] if known and base is not Answer else new)
    own = kind.__doc__ if kind.__doc__ and kind.__doc__ not in (Answer.__doc__, Request.__doc__) else ""
    meaning = " ".join(inspect.cleandoc(own).split()) if not own.startswith(f"{kind.__name__}(") else ""
    return f"| `{kind.__name__}` | `{{{fields}}}`{' ' if meaning else ''}{meaning} |"


def _field(field: types.Field) -> str:
    """A `?` marks what may be left out and has no default."""
    usual, made = field.default, field.default_factory
    if made is not msgspec.NODEFAULT:
        usual = made()
    known = usual is not msgspec.NODEFAULT
    shown = f" = {msgspec.json.encode(usual).decode()}" if known else ""
    mark = "" if known or field.required else "?"
    return f"{field.name}{mark}: {_shown(field.type)}{shown}".replace("|", "\\|")


def _shown(kind: types.Type) -> str:
    if isinstance(kind, types.StructType):
        return kind.cls.__name__
    if isinstance(kind, types.UnionType):
        shown = list(map(_shown, kind.types))
        return " | ".join(one for one in shown if one != "int" or "number" not in shown)
    if isinstance(kind, types.TupleType):
        return f"[{', '.join(map(_shown, kind.item_types))}]"
    if isinstance(kind, types.CollectionType):
        return f"[{_shown(kind.item_type)} …]"
    if isinstance(kind, types.DictType):
        return f"{{text: {_shown(kind.value_type)}}}"
    if isinstance(kind, types.LiteralType):
        return " | ".join(map(str, kind.values))
    if isinstance(kind, types.NamedTupleType):
        return f"[{', '.join(field.name for field in kind.fields)}]"
    return PLAIN[type(kind)]


def _who(route: Route) -> str:
    return "" if route.who is Who.ANYBODY else route.who
