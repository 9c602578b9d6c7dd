"""The history of the network on SQLite or PostgreSQL.

Marks say how far it is summarised (`hourly`, `daily`: all that is older is) and forgotten (`raw`), and
how far of the changes of statuses only the last of each day is left (`changes`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rm.adapters.store import records, schema, statements
from rm.adapters.store.database import Door, around_damage, lenient_text
from rm.adapters.store.set_aside import sound
from rm.core.monitoring.cells import Cell, Change
from rm.core.monitoring.history import Retention, Sample, Summary, merge, summarise
from rm.core.monitoring.mesh import MeshState
from rm.units import DAY_US, HOUR_US, MINUTE_US

T = TypeVar("T")
CHUNK = 2_000  # rows of one transaction: the leader's commits go on in between
PAUSE_S = 0.005
SETTLED_US = 2 * MINUTE_US  # an hour is summarised when it has been over for so long
HOURLY, DAILY, RAW, CHANGES = "hourly", "daily", "raw", "changes"

pairs, tries, spans, marks = (
    schema.network_pairs,
    schema.network_samples,
    schema.network_summaries,
    schema.history_marks,
)
cells, flips = schema.network_cells, schema.network_changes
SAMPLES = sa.select(tries, pairs.c.source, pairs.c.destination).join(pairs, pairs.c.id == tries.c.pair)
SUMMARIES = sa.select(spans, pairs.c.source, pairs.c.destination).join(pairs, pairs.c.id == spans.c.pair)
MARKS = sa.select(marks).with_for_update()


class SqlHistory:
    """A `History`; the store gives it the doors to its database."""

    def __init__(self, dialect: str, reading: Door, changing: Door) -> None:
        self._reading = reading
        self._changing = changing
        self._upsert = statements.upserts(dialect)
        self._add = statements.additions(dialect)
        self._pairs: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()  # of the ids that are known

    def _sound(self, kind: str, query: sa.Select[Any], value: Callable[[Any], T]) -> list[T]:
        """What can be read; the rest is left out with a word."""
        purpose = f"read the history ({kind}s)"
        return around_damage(self._reading, purpose, lambda c: sound(kind, c.execute(query), value))

    def record(self, samples: Iterable[Sample]) -> int:
        new = 0
        for some in chunks(samples, CHUNK):
            ids = self._ids({(s.source, s.destination) for s in some})
            with self._changing("record measurements") as c:
                known = _marks(c)
                fitting = [s for s in some if s.at_us >= known.get(RAW, 0)]
                rows = [records.sample_row(ids[s.source, s.destination], s) for s in fitting]
                added = (
                    len(c.execute(self._add[tries.name].returning(tries.c.pair), rows).all()) if rows else 0
                )
                if added:
                    first_us = min(s.at_us for s in fitting)
                    self._go_back(c, known, HOURLY, first_us // HOUR_US * HOUR_US)
            new += added
        return new

    def _go_back(self, c: Connection, known: dict[str, int], name: str, to_us: int) -> None:
        if known.get(name, 0) > to_us:
            self._mark(c, name, to_us)

    def _mark(self, c: Connection, name: str, at_us: int) -> None:
        c.execute(self._upsert[marks.name], {"name": name, "at_us": at_us})

    def _ids(self, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The ids of these directions, made if need be; known only once they are durable."""
        with self._lock:
            missing = sorted(p for p in wanted if p not in self._pairs)
            for some in chunks(missing, CHUNK):
                found: dict[tuple[str, str], int] = {}
                with self._changing("record measurements") as c:
                    c.execute(self._add[pairs.name], [{"source": a, "destination": b} for a, b in some])
                    for sources in chunks(sorted({a for a, _ in some}), 500):
                        query = sa.select(pairs).where(pairs.c.source.in_(sources))
                        found |= {(r.source, r.destination): r.id for r in c.execute(query)}
                self._pairs |= found
            return {pair: self._pairs[pair] for pair in wanted}

    def samples(
        self,
        source: str,
        destination: str,
        since_us: int = 0,
        until_us: int | None = None,
        mesh: str = "",
        limit: int | None = None,
    ) -> list[Sample]:
        query = SAMPLES.where(pairs.c.source == source, pairs.c.destination == destination)
        query = query.where(tries.c.at_us >= since_us)
        if until_us is not None:
            query = query.where(tries.c.at_us < until_us)
        if mesh:
            query = query.where(tries.c.mesh == mesh)
        query = query.order_by(tries.c.at_us.desc(), tries.c.mesh.desc()).limit(limit)
        return self._sound("measurement", query, records.sample)[::-1]

    def summaries(
        self, source: str, destination: str, span_us: int, since_us: int = 0, until_us: int | None = None
    ) -> list[Summary]:
        query = SUMMARIES.where(pairs.c.source == source, pairs.c.destination == destination)
        query = query.where(spans.c.span_us == span_us, spans.c.start_us >= since_us)
        if until_us is not None:
            query = query.where(spans.c.start_us < until_us)
        return self._sound("summary", query.order_by(spans.c.start_us), records.summary)

    def latest(self, mesh: str = "") -> list[Sample]:
        other = tries.alias()
        newest = sa.select(sa.func.max(other.c.at_us)).where(other.c.pair == pairs.c.id)
        query = SAMPLES
        if mesh:
            newest, query = newest.where(other.c.mesh == mesh), query.where(tries.c.mesh == mesh)
        query = query.where(tries.c.at_us == newest.correlate(pairs).scalar_subquery())
        found = {(s.source, s.destination): s for s in self._sound("measurement", query, records.sample)}
        return [found[pair] for pair in sorted(found)]

    # ── growing old ──

    def roll_up(self, now_us: int) -> int:
        written = 0
        while (some := self._next_hour(now_us)) is not None:
            written += some
            time.sleep(PAUSE_S)  # waiters for the lock get it
        while (some := self._next_day()) is not None:
            written += some
            time.sleep(PAUSE_S)
        return written

    def _next_hour(self, now_us: int) -> int | None:
        """Summarise the first hour that is over and is not; None when there is none."""
        over_us = (now_us - SETTLED_US) // HOUR_US * HOUR_US
        with self._changing("summarise measurements") as c, lenient_text(c):
            known = _marks(c)
            begun = sa.select(sa.func.min(tries.c.at_us)).where(tries.c.at_us >= known.get(HOURLY, 0))
            first_us = c.scalar(begun)
            if not isinstance(first_us, int) or (start_us := first_us // HOUR_US * HOUR_US) >= over_us:
                if over_us > known.get(HOURLY, 0):
                    self._mark(c, HOURLY, over_us)
                return None
            hour = SAMPLES.where(tries.c.at_us >= start_us, tries.c.at_us < start_us + HOUR_US)
            rows = c.execute(hour).all()
            made = summarise(sound("measurement", rows, records.sample), HOUR_US)
            self._put_summaries(c, made, rows)
            self._mark(c, HOURLY, start_us + HOUR_US)
            self._go_back(c, known, DAILY, start_us // DAY_US * DAY_US)
        return len(made)

    def _next_day(self) -> int | None:
        with self._changing("summarise measurements") as c, lenient_text(c):
            known = _marks(c)
            of_hours = spans.c.span_us == HOUR_US
            begun = sa.select(sa.func.min(spans.c.start_us)).where(of_hours)
            first_us = c.scalar(begun.where(spans.c.start_us >= known.get(DAILY, 0)))
            if not isinstance(first_us, int):
                return None
            start_us = first_us // DAY_US * DAY_US
            if start_us + DAY_US > known.get(HOURLY, 0):
                return None
            day = SUMMARIES.where(
                of_hours, spans.c.start_us >= start_us, spans.c.start_us < start_us + DAY_US
            )
            rows = c.execute(day).all()
            made = merge(sound("summary", rows, records.summary), DAY_US)
            self._put_summaries(c, made, rows)
            self._mark(c, DAILY, start_us + DAY_US)
        return len(made)

    def _put_summaries(self, c: Connection, made: list[Summary], of: Sequence[Any]) -> None:
        ids = {(r.source, r.destination): r.pair for r in of}
        rows = [records.summary_row(ids[s.source, s.destination], s) for s in made]
        if rows:  # those of hosts that were forgotten are not found
            c.execute(self._upsert[spans.name], rows)

    def prune(self, now_us: int, keep: Retention) -> int:
        """In many short transactions: the leader's commits go on in between."""
        with self._changing("prune the history") as c:
            known = _marks(c)
            raw_us = min(now_us - keep.raw_us, known.get(HOURLY, 0)) // HOUR_US * HOUR_US
            hourly_us = min(now_us - keep.hourly_us, known.get(DAILY, 0)) // DAY_US * DAY_US
            if raw_us > known.get(RAW, 0) or known.get(RAW, 0) > now_us:  # by a clock that was ahead then
                self._mark(c, RAW, raw_us)  # from now on nothing older is taken
        forgotten = self._delete(tries, (tries.c.at_us,), tries.c.at_us < raw_us)
        for span_us, before_us in ((HOUR_US, hourly_us), (DAY_US, now_us - keep.daily_us)):
            old = (spans.c.span_us == span_us) & (spans.c.start_us < before_us)
            forgotten += self._delete(spans, (spans.c.start_us,), old)
        forgotten += self._delete(flips, (flips.c.at_us,), flips.c.at_us < now_us - keep.daily_us)
        return forgotten + self._thin(known.get(CHANGES, 0), now_us - keep.hourly_us)

    def _thin(self, from_us: int, until_us: int) -> int:
        """Of the changes of whole days in between leave the last of each cell and day."""
        until_us = until_us // DAY_US * DAY_US
        if until_us <= from_us:
            return 0
        later = flips.alias()
        same = [later.c[name] == flips.c[name] for name in ("mesh", "check_name", "source", "destination")]
        tomorrow = (flips.c.at_us // DAY_US + 1) * DAY_US
        superseded = sa.exists().where(*same, later.c.at_us > flips.c.at_us, later.c.at_us < tomorrow)
        within = (flips.c.at_us >= from_us) & (flips.c.at_us < until_us)
        forgotten = self._delete(flips, (flips.c.at_us,), within & superseded)
        with self._changing("prune the history") as c:
            self._mark(c, CHANGES, until_us)
        return forgotten

    def _delete(self, table: sa.Table, by: tuple[sa.Column[Any], ...], old: sa.ColumnElement[bool]) -> int:
        forgotten = 0
        key = tuple(table.primary_key)
        some = sa.select(*key).where(old).order_by(*by).limit(CHUNK)
        while True:
            with self._changing("prune the history") as c:
                gone = c.execute(sa.delete(table).where(sa.tuple_(*key).in_(some))).rowcount
            forgotten += gone
            if gone < CHUNK:
                return forgotten
            time.sleep(PAUSE_S)

    # ── the grid ──

    def cells(self, mesh: str = "") -> list[Cell]:
        query = sa.select(cells).order_by(*cells.primary_key)
        if mesh:
            query = query.where(cells.c.mesh == mesh)
        return self._sound("cell", query, records.cell)

    def put_cells(self, new: Iterable[Cell], changes: Iterable[Change] = ()) -> None:
        for told in chunks(changes, CHUNK):
            with self._changing("record the grid") as c:
                c.execute(self._upsert[flips.name], [records.change_row(change) for change in told])
        for some in chunks(new, CHUNK):
            with self._changing("record the grid") as c:
                c.execute(self._upsert[cells.name], [records.cell_row(cell) for cell in some])

    def changes(
        self,
        mesh: str = "",
        check: str = "",
        source: str = "",
        destination: str = "",
        since_us: int = 0,
        limit: int | None = None,
    ) -> list[Change]:
        query = sa.select(flips).where(flips.c.at_us >= since_us)
        wanted = {"mesh": mesh, "check_name": check, "source": source, "destination": destination}
        for name, value in wanted.items():
            if value:
                query = query.where(flips.c[name] == value)
        query = query.order_by(flips.c.at_us.desc(), *(flips.c[name].desc() for name in wanted)).limit(limit)
        return self._sound("change", query, records.change)[::-1]

    def mesh_states(self) -> list[MeshState]:
        query = sa.select(schema.meshes).order_by(schema.meshes.c.mesh)
        return self._sound("mesh", query, records.mesh_state)

    def put_mesh_state(self, state: MeshState) -> None:
        with self._changing("record a mesh") as c:
            c.execute(self._upsert[schema.meshes.name], records.mesh_row(state))

    def forget_mesh(self, mesh: str) -> None:
        for table in (cells, flips, schema.meshes):
            self._delete(table, (), table.c.mesh == mesh)

    def forget_host(self, host: str) -> None:
        """Its pairs go; their tries and summaries, which nobody finds without them, when they are old."""
        for table in (cells, flips):
            self._delete(table, (), (table.c.source == host) | (table.c.destination == host))
        with self._lock:
            self._delete(pairs, (), (pairs.c.source == host) | (pairs.c.destination == host))
            self._pairs = {pair: id for pair, id in self._pairs.items() if host not in pair}


def _marks(c: Connection) -> dict[str, int]:
    """Without those that are damaged: what they would say is found again."""
    with lenient_text(c):
        return {r.name: r.at_us for r in c.execute(MARKS) if isinstance(r.at_us, int)}


def chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(values)
    while some := list(islice(rest, size)):
        yield some
