"""The sums of usage in the database: added to with the end of each attempt, and read by spans of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql.dml import Insert

from rm.adapters.store.schema import usage_sums as table
from rm.adapters.store.statements import insert_of
from rm.core.sharing.ended import DAY_US, HOUR_US, SPANS_US, Ended, Heap, Sums, added_up
from rm.core.sharing.usage_query import NAMES, Asked

MOST = 1 << 61  # of a sum, whatever hosts tell: two of them still fit 64 bits
COLUMN = {"user": "user_name"}  # `user` is a word of SQL
KEY = ("span_us", "start_us", "account", "user_name", "qos", "partition", "host")  # as of a Heap


def rows_of(ended: Iterable[Ended]) -> list[dict[str, Any]]:
    """What is added for them, by `addition`."""
    return [
        {**dict(zip(KEY, heap, strict=True)), **{n: min(v, MOST) for n, v in sums._asdict().items()}}
        for heap, sums in added_up(ended).items()
    ]


def addition(dialect: str) -> Insert:
    """Insert a row, or add its sums to those of the one that has its key."""
    insert = insert_of(dialect, table)
    least = sa.func.least if dialect == "postgresql" else sa.func.min
    most: sa.ColumnElement[int] = sa.literal_column(str(MOST))
    new = {name: least(table.c[name] + insert.excluded[name], most) for name in Sums._fields}
    return insert.on_conflict_do_update(index_elements=list(KEY), set_=new)


def read_usage(c: Connection, asked: Asked) -> list[tuple[Heap, Sums]]:
    found: dict[Heap, Sums] = {}
    for span_us, from_us, until_us in asked.spans():
        for heap, sums in _of_span(c, asked, span_us, from_us, until_us):
            found[heap] = found[heap].plus(sums) if heap in found else sums
    return sorted(found.items())


def _of_span(
    c: Connection, asked: Asked, span_us: int, from_us: int, until_us: int
) -> Iterable[tuple[Heap, Sums]]:
    day = table.c.start_us - table.c.start_us % DAY_US
    names = [name for name in asked.by if name != "day"]
    columns = [table.c[COLUMN.get(name, name)] for name in names]
    heads: list[Any] = [*columns, *([day.label("day")] if "day" in asked.by else [])]
    # which cannot overflow: SQLite's own `sum` would refuse the whole answer
    add_up = sa.func.total if c.dialect.name == "sqlite" else sa.func.sum
    sums = [add_up(table.c[name]) for name in Sums._fields]
    query = sa.select(*heads, *sums).where(
        table.c.span_us == span_us, table.c.start_us >= from_us, table.c.start_us < until_us
    )
    query = query.where(table.c.host != "" if asked.of_hosts else table.c.host == "")
    for name, value in asked.only:
        query = query.where(table.c[COLUMN.get(name, name)] == value)
    for row in c.execute(query.group_by(*heads) if heads else query):
        told = dict(zip(names, row, strict=False))
        start_us = row[len(names)] if "day" in asked.by else 0
        values = Sums._make(round(value or 0) for value in row[len(heads) :])
        yield Heap(0, start_us, *(told.get(name, "") for name in (*NAMES, "host"))), values


def old_usage(hours_before_us: int, days_before_us: int) -> sa.ColumnElement[bool]:
    """The sums that are forgotten."""
    before_us = dict(zip(SPANS_US, (hours_before_us, days_before_us), strict=True))
    assert set(before_us) == {HOUR_US, DAY_US}
    return sa.or_(*(
        sa.and_(table.c.span_us == span_us, table.c.start_us + span_us <= at_us)
        for span_us, at_us in before_us.items()
    ))  # fmt: skip
