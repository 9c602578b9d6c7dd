"""The messages as tables in Markdown: the generated parts of docs/agent-protocol.md."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from enum import Enum
from inspect import cleandoc
from types import ModuleType
from typing import Any, Literal

import msgspec
from msgspec import NODEFAULT, UnsetType

from rm.protocol import attempts, hosts, job_steps, latencybg, network, notifications, probes, steps, streams
from rm.protocol.codes import Code
from rm.protocol.notifications import Notification
from rm.protocol.request import Request, answer_of, name_of

MODULES = (attempts, job_steps, hosts, network, probes, latencybg, steps, streams)


def requests() -> list[type[Request[Any]]]:
    """Every request, in the order of the files."""
    return [kind for module in MODULES for kind in _own(module, Request)]


def events() -> list[type[Notification]]:
    return [kind for kind in _own(notifications, Notification) if kind is not Notification]


def _own(module: ModuleType, base: type) -> Iterator[type[Any]]:
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == module.__name__:
            yield kind


def tables() -> dict[str, str]:
    """The generated parts of the document by their names."""
    return {
        "operations": "\n".join(_operations()),
        "notifications": "\n".join(_notifications()),
        "types": "\n".join(_types()),
        "codes": ", ".join(f"`{code}`" for code in Code if code is not Code.UNKNOWN) + ".",
    }


def _operations() -> Iterator[str]:
    yield "| op | arguments | answer | what it does |"
    yield "|---|---|---|---|"
    for kind in requests():
        yield f"| `{name_of(kind)}` | {_fields(kind)} | {_answer(kind)} | {_words(kind)} |"


def _answer(kind: type[Request[Any]]) -> str:
    answer = answer_of(kind)
    return _fields(answer) or "`{}`"


def _notifications() -> Iterator[str]:
    yield "| event | fields | when |"
    yield "|---|---|---|"
    for kind in events():
        yield f"| `{kind.__struct_config__.tag}` | {_fields(kind)} | {_words(kind)} |"


def _types() -> Iterator[str]:
    yield "| part | fields | |"
    yield "|---|---|---|"
    seen: list[type[msgspec.Struct]] = []
    for kind in [*requests(), *map(answer_of, requests()), *events()]:
        _collect(kind, seen, top=True)
    for kind in seen:
        yield f"| `{kind.__name__}` | {_fields(kind)} | {_words(kind)} |"


def _collect(kind: type[msgspec.Struct], seen: list[type[msgspec.Struct]], top: bool = False) -> None:
    if not top:
        if kind in seen:
            return
        seen.append(kind)
    for field in msgspec.structs.fields(kind):
        for inner in _structs(field.type):
            _collect(inner, seen)


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for argument in typing.get_args(kind):
        yield from _structs(argument)


def _fields(kind: type[msgspec.Struct]) -> str:
    return ", ".join(_field(field) for field in msgspec.structs.fields(kind))


def _field(field: msgspec.structs.FieldInfo) -> str:
    shape = _shape(field.type)
    optional = UnsetType in typing.get_args(field.type)
    default = field.default is not NODEFAULT or field.default_factory is not NODEFAULT
    mark = "?" if optional or default else ""
    return f"`{field.encode_name}{mark}`{' ' + shape if shape else ''}"


def _shape(kind: Any) -> str:
    """In words, what the name of a field does not show: its form and its range."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        inner, *notes = arguments
        return " ".join(filter(None, (_shape(inner), *map(_range, notes))))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f"`{member.value}`" for member in kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"{{{kind.__name__}}}"
    if origin is list:
        inner = _shape(arguments[0])
        return f"[{inner}, …]" if inner else "[…]"
    if origin is dict:
        return "{name: " + (_shape(arguments[1]) or "value") + "}"
    if origin is tuple:
        return f"[{len(arguments)} numbers]"
    if arguments:  # a union
        return " ".join(filter(None, (_shape(one) for one in arguments if one is not UnsetType)))
    return {bool: "true or false", type(None): "or null", str: "", int: "", float: ""}.get(kind, "")


def _range(note: Any) -> str:
    if not isinstance(note, msgspec.Meta):
        return ""
    if note.max_length is not None:
        return f"(≤ {_number(note.max_length)})"
    if note.ge is not None and note.le is not None:
        return f"({_number(note.ge)}…{_number(note.le)})"
    return ""


def _number(value: float) -> str:
    whole = int(value)
    for power in (63, 53, 40, 31, 23):
        for plus, sign in ((0, ""), (-1, " - 1")):
            if abs(whole) == (1 << power) + plus:
                return f"{'-' if whole < 0 else ''}2^{power}{sign}"
    return f"{whole:_}"


def _words(kind: type) -> str:
    own = kind.__doc__ or ""
    inherited = any(own == base.__doc__ for base in kind.__mro__[1:])
    return "" if inherited else " ".join(cleandoc(own).split()).replace("|", "\\|")
