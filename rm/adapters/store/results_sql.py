"""The results that archives are still to get, on SQLite or PostgreSQL: a row a result, a row an archive.

Of a result's mesh and hosts is kept what documents say of them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rm.adapters.store.database import Door, around_damage
from rm.adapters.store.records import from_text, to_text
from rm.adapters.store.schema import archive_cursors, archive_results
from rm.adapters.store.set_aside import sound
from rm.adapters.store.statements import upserts
from rm.core.model.host import Host
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.outcome import Outcome
from rm.core.monitoring.results import Cursor
from rm.core.monitoring.service_test import ServiceTest
from rm.typed import decoder_of

READING = "read the results for archives"
CHUNK = 500  # rows of one transaction: the leader's commits go on in between
PAUSE_S = 0.005
GIVEN = {  # the newest number that a result was given
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = 'archive_results'",
    "postgresql": "SELECT pg_sequence_last_value(pg_get_serial_sequence('archive_results', 'id'))",
}
rows, places = archive_results.c, archive_cursors.c


@dataclass(frozen=True, slots=True)
class _End:
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """An Outcome as it is stored; the fields of its mesh have the mesh's names."""

    mesh: str
    test: str
    source: _End
    destination: _End
    begun_us: int
    ended_us: int
    failed: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
    packets: int = 0
    spacing_us: int = 0
    duration_us: int = 0
    rate_bps: int = 0
    service: ServiceTest = field(default_factory=ServiceTest)


_kept, _cursor = decoder_of(_Kept), decoder_of(Cursor)


class SqlResults:
    """A `Results`; the store gives it the doors to its database."""

    def __init__(self, dialect: str, reading: Door, changing: Door) -> None:
        self._reading = reading
        self._changing = changing
        self._put = upserts(dialect)[archive_cursors.name]
        self._given = sa.text(GIVEN[dialect])

    def add(self, outcomes: Iterable[Outcome]) -> int:
        texts = [to_text(_kept_of(outcome), f"A result of {outcome.test}") for outcome in outcomes]
        made = [{"size_bytes": len(text), "body": text} for text in texts]
        with self._changing("keep results for archives") as c:
            for at in range(0, len(made), CHUNK):
                c.execute(sa.insert(archive_results), made[at : at + CHUNK])
            return c.scalar(sa.select(sa.func.max(rows.id))) or 0

    def newest(self) -> int:
        with self._reading(READING) as c:
            return max(c.scalar(self._given) or 0, c.scalar(sa.select(sa.func.max(rows.id))) or 0)

    def after(self, number: int, limit: int) -> tuple[list[tuple[int, Outcome]], int]:
        query = sa.select(archive_results).where(rows.id > number).order_by(rows.id).limit(limit)

        def read(c: Connection) -> tuple[list[tuple[int, Outcome]], int]:
            looked_at = c.execute(query).all()
            last = looked_at[-1].id if looked_at else number
            return sound("result", looked_at, _read), last

        return around_damage(self._reading, READING, read)

    def some(self, numbers: Collection[int]) -> list[tuple[int, Outcome]]:
        wanted, found = sorted(numbers), list[tuple[int, Outcome]]()
        for at in range(0, len(wanted), CHUNK):
            query = sa.select(archive_results).where(rows.id.in_(wanted[at : at + CHUNK])).order_by(rows.id)
            found += self._sound(query)
        return found

    def _sound(self, query: sa.Select[Any]) -> list[tuple[int, Outcome]]:
        """What can be read; the rest is left out with a word."""
        return around_damage(self._reading, READING, lambda c: sound("result", c.execute(query), _read))

    def cursors(self) -> Mapping[str, Cursor]:
        query = sa.select(archive_cursors)
        purpose = "read how far archives have got"
        return dict(
            around_damage(self._reading, purpose, lambda c: sound("cursor", c.execute(query), _read_cursor))
        )

    def put_cursor(self, archive: str, cursor: Cursor) -> None:
        body = to_text(cursor, f"How far archive {archive} has got")
        with self._changing("keep how far an archive has got") as c:
            c.execute(self._put, {"archive": archive, "body": body})

    def forget_cursors(self, but: Collection[str]) -> None:
        with self._changing("forget archives") as c:
            c.execute(sa.delete(archive_cursors).where(places.archive.not_in(list(but))))

    def prune(self, before: int, most: int, most_bytes: int) -> int:
        """In many short transactions: the leader's commits go on in between."""
        beyond = sa.select(rows.id).order_by(rows.id.desc()).offset(most).limit(1)
        size = sa.func.sum(rows.size_bytes).over(order_by=rows.id.desc())
        sizes = sa.select(rows.id, size.label("so_far")).subquery()
        large = sa.select(sa.func.max(sizes.c.id)).where(sizes.c.so_far > most_bytes)
        with self._reading("look for old results for archives") as c:
            first = max(before, (c.scalar(beyond) or 0) + 1)
            if (c.scalar(sa.select(sa.func.sum(rows.size_bytes))) or 0) > most_bytes:
                first = max(first, (c.scalar(large) or 0) + 1)
        gone = 0
        some = sa.select(rows.id).where(rows.id < first).order_by(rows.id).limit(CHUNK)
        while True:
            with self._changing("forget results for archives") as c:
                found = c.execute(sa.delete(archive_results).where(rows.id.in_(some))).rowcount
            gone += found
            if found < CHUNK:
                return gone
            time.sleep(PAUSE_S)  # waiters for the lock get it


def _kept_of(outcome: Outcome) -> _Kept:
    mesh, (source, destination) = outcome.mesh, (outcome.source, outcome.destination)
    return _Kept(
        mesh.name, outcome.test, _End(source.name, source.address),
        _End(destination.name, destination.address), outcome.begun_us, outcome.ended_us, outcome.failed,
        outcome.found,
        mesh.packets, mesh.spacing_us, mesh.duration_us, mesh.rate_bps, mesh.service,
    )  # fmt: skip


def _outcome_of(kept: _Kept) -> Outcome:
    mesh = Mesh(
        kept.mesh, tests=(kept.test,), packets=kept.packets, spacing_us=kept.spacing_us,
        duration_us=kept.duration_us, rate_bps=kept.rate_bps, service=kept.service,
    )  # fmt: skip
    source, destination = (Host(end.name, "", end.address) for end in (kept.source, kept.destination))
    return Outcome(
        mesh, kept.test, source, destination, kept.begun_us, kept.ended_us, kept.failed, kept.found
    )


def _read(row: Any) -> tuple[int, Outcome]:
    return row.id, _outcome_of(from_text(_kept, row.body, f"The result {row.id} for archives"))


def _read_cursor(row: Any) -> tuple[str, Cursor]:
    return row.archive, from_text(_cursor, row.body, f"How far archive {row.archive} has got")
