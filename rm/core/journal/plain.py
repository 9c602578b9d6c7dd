"""Core values as plain JSON values, short, and back.

A dataclass becomes an object without the fields that have their default, so that a value which an
older rm wrote is read with the defaults of fields that came later; fields that are not known are
ignored. The many small values (`POSITIONAL`) become arrays of their fields, in order, without the
defaults at the end: fields may be added to them at the end only.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

from rm.core.jobs.events import TaskExited
from rm.core.model.asked.traffic import Phase
from rm.core.model.host import Host
from rm.core.model.job import Job, JobSpec, TaskPlacement
from rm.core.model.network.alignment import Alignment
from rm.core.model.progress import Progress

T = TypeVar("T")
Reader = Callable[[Any], Any]
RUN = 8  # fields that are compared together
OWN_VARIABLES = "rm_"  # what the inventory tells rm itself begins so; only that is written

ATOMS = frozenset({str, int, float, bool, type(None)})
POSITIONAL = frozenset({Phase, Progress, TaskPlacement})
# What no decision depends on, or what follows from the rest, and what users would not want others to read;
# read back as this.
LEFT_OUT: dict[type, dict[str, object]] = {
    JobSpec: {"script": "", "script_args": (), "env": (), "submit_line": "", "script_path": ""},
    Job: {
        "history": (),
        "earlier": (),
        "reason": None,
        "used": (),
        "slowed": (),
        "saved_us": 0,
        "waited": (),
    },
    TaskExited: {"used": None, "whole": None},
    Alignment: {"grounds": None},
}


def to_plain(value: Any, known: Mapping[str, Any] = {}) -> Any:
    """The value as dicts with text keys, lists, text, numbers, booleans and None. `known`: fields of it whose
    plain form is known.

    Raises:
        TypeError: the value holds something else.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is tuple or kind is list:
        return [to_plain(item) for item in value]
    if is_dataclass(kind):
        if kind is Host:
            own = tuple(v for v in value.variables if v[0].startswith(OWN_VARIABLES))
            value = replace(value, variables=own)
        written = _written(kind)
        if kind in POSITIONAL:
            row = [to_plain(getattr(value, name)) for name, _ in written]
            while row and row[-1] == written[len(row) - 1][1]:
                row.pop()
            return row
        body = {}
        for values_of, names, defaults in _runs(kind):
            values = values_of(value)
            if values != defaults:
                for name, item, default in zip(names, values, defaults, strict=True):
                    if default is MISSING or item != default:
                        body[name] = item if type(item) in ATOMS else known.get(name) or to_plain(item)
        return body
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{kind.__name__} has no plain form")


def from_plain(kind: type[T], plain: Any) -> T:
    """The value of this type that `to_plain` made `plain` of.

    Raises:
        ValueError: `plain` is not such a value; the sentence names the place.
    """
    hint: Any = kind
    made: T = reader(hint)(plain)
    return made


@cache
def _written(kind: type) -> tuple[tuple[str, object], ...]:
    """(field, default) of what is written of a dataclass."""
    return tuple((f.name, _default(f)) for f in fields(kind) if f.name not in LEFT_OUT.get(kind, {}))


@cache
def _runs(kind: type) -> tuple[tuple[Reader, tuple[str, ...], tuple[object, ...]], ...]:
    """The same, some fields at a time: (what reads them, their names, their defaults). Most of a job's
    fields have their default: together they are compared with it in a tenth of the time."""
    written = _written(kind)
    found = []
    for at in range(0, len(written), RUN):
        run = written[at : at + RUN]
        values_of: Reader = attrgetter(*(name for name, _ in run))
        if len(run) == 1:
            values_of = _alone(values_of)
        found.append((values_of, tuple(name for name, _ in run), tuple(default for _, default in run)))
    return tuple(found)


def _alone(value_of: Reader) -> Reader:
    return lambda value: (value_of(value),)


def _default(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@cache
def reader(hint: Any) -> Reader:
    """What `from_plain` does for one type, which may be a type hint."""
    if hint is Any:
        return lambda plain: plain
    if hint in ATOMS:
        return _atom(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    origin, of = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if len(of) == 2 and type(None) in of:
            return _optional(reader(of[of[0] is type(None)]))
        if ATOMS.issuperset(of):
            return _atom(*of)
    if origin is tuple:
        return _sequence(reader(of[0])) if of[-1] is Ellipsis else _row([reader(t) for t in of])
    if origin in (dict, Mapping) and of[0] in (str, int):
        return _mapping(of[0], reader(of[1]))
    raise TypeError(f"{hint} has no plain form")


def _atom(*kinds: type) -> Reader:
    allowed = {*kinds, int} if float in kinds else set(kinds)

    def read(plain: Any) -> Any:
        if type(plain) not in allowed:
            raise ValueError(f"{plain!r:.40} is not {' or '.join(k.__name__ for k in kinds)}")
        return plain

    return read


def _optional(inner: Reader) -> Reader:
    return lambda plain: None if plain is None else inner(plain)


def _sequence(inner: Reader) -> Reader:
    return lambda plain: tuple([inner(item) for item in _list(plain)])


def _row(inner: list[Reader]) -> Reader:
    def read(plain: Any) -> Any:
        if len(_list(plain)) != len(inner):
            raise ValueError(f"{plain!r:.40} has not {len(inner)} items")
        return tuple([one(item) for one, item in zip(inner, plain, strict=True)])

    return read


def _mapping(key: type, inner: Reader) -> Reader:
    """JSON has text keys only: numbers among them are text there."""
    return lambda plain: {key(name): inner(item) for name, item in _object(plain).items()}


def _list(plain: Any) -> Any:
    if not isinstance(plain, list):
        raise ValueError(f"{plain!r:.40} is not a list")
    return plain


def _object(plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise ValueError(f"{plain!r:.40} is not an object")
    return plain


def _dataclass(kind: type) -> Reader:
    left_out = LEFT_OUT.get(kind, {})
    hints = typing.get_type_hints(kind)
    needed = [name for name, default in _written(kind) if default is MISSING]
    readers: dict[str, Reader] = {}  # made at first use: a type may hold itself
    names = [name for name, _ in _written(kind)]

    def read(plain: Any) -> Any:
        if isinstance(plain, list) and kind in POSITIONAL:
            plain = dict(zip(names, plain, strict=False))
        if not readers:
            readers.update((name, reader(hints[name])) for name in names)
        values = dict(left_out)
        for name, item in _object(plain).items():
            if (one := readers.get(name)) is not None:
                try:
                    values[name] = one(item)
                except ValueError as error:
                    raise ValueError(f"{kind.__name__}.{name}: {error}") from None
        for name in needed:
            if name not in values:
                raise ValueError(f"{kind.__name__} lacks {name}")
        return kind(**values)

    return read
