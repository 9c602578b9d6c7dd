"""Damaged rows of the database: read around, and kept in a table of their own for an administrator."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rm.adapters.store import schema
from rm.adapters.store.records import damaged
from rm.core.store import Damaged
from rm.errors import StoreError

log = logging.getLogger(__name__)
Value = TypeVar("Value")

# kind -> the tables that hold it, the one that others refer to last, with the columns of its name
_PLACES: dict[str, tuple[tuple[sa.Table, tuple[str, ...]], ...]] = {
    "job": ((schema.jobs, ("id",)), (schema.job_specs, ("id",))),
    "host": ((schema.hosts, ("name",)),),
    "zone": ((schema.zones, ("name",)),),
    "action": ((schema.actions, ("id",)),),
    "measurement": ((schema.measurements, ("source", "destination")),),
    "document": ((schema.documents, ("name",)),),
    "token": ((schema.tokens, ("id",)),),
}


def sound(
    kind: str, rows: Iterable[Any], read: Callable[[Any], Value], damaged: list[Damaged] | None = None
) -> list[Value]:
    """The values of the rows that can be read; the others are noted in `damaged`, or else logged."""
    found = []
    for row in rows:
        try:
            found.append(read(row))
        except StoreError as error:
            if damaged is None:
                log.warning("%s It is left out.", error.what)
                continue
            key = tuple(str(getattr(row, column)) for column in _PLACES[kind][0][1])
            damaged.append(Damaged(kind, key, error.what))
    return found


def sound_cluster(row: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The row of the cluster itself, or some of its columns: around it nothing can be read.

    Raises:
        StoreError: it is damaged.
    """
    for name, value in row.items():
        kind = schema.cluster.c[name].type.python_type
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise damaged("The row of the cluster", f"{name} is {value!r}")
    return row


def put_aside(c: Connection, damaged: Iterable[Damaged], at_us: int) -> None:
    """Move the rows, as they are, to the table `set_aside`."""
    for one in damaged:
        kept: dict[str, Any] = {}
        for table, columns in _PLACES[one.kind]:
            its = [
                sa.cast(table.c[name], sa.Text) == _bound(value)
                for name, value in zip(columns, one.key, strict=True)
            ]
            row = c.execute(sa.select(table).where(*its)).mappings().one_or_none()
            if row is not None:
                kept[table.name] = dict(row)
                if table is schema.job_specs:  # of an array: its elements may have it still
                    its.append(~sa.exists().where(schema.jobs.c.spec_id == table.c.id))
                c.execute(sa.delete(table).where(*its))
        if kept:
            c.execute(
                sa.insert(schema.set_aside),
                {
                    "at_us": at_us,
                    "kind": one.kind,
                    "name": _clean(" to ".join(one.key)),
                    "why": _clean(one.why),
                    "body": json.dumps(kept, default=repr),
                },
            )


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _bound(value: str) -> Any:
    """The value for a comparison, also where it is not UTF-8 in the database."""
    if _clean(value) == value:
        return value
    return sa.cast(sa.literal(value.encode("utf-8", "surrogateescape")), sa.Text)


def rows_aside(c: Connection) -> list[Damaged]:
    rows = c.execute(sa.select(schema.set_aside).order_by(schema.set_aside.c.id))
    return [Damaged(row.kind, (row.name,), row.why) for row in rows]
