"""Runs of playbooks on SQLite or PostgreSQL: a row a run, a row for each task of a host, a row a schedule."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from rm.adapters.store.database import Door, around_damage
from rm.adapters.store.records import from_text, to_text
from rm.adapters.store.schema import playbook_outcomes, playbook_runs, playbook_schedules
from rm.adapters.store.set_aside import sound
from rm.adapters.store.statements import insert_of
from rm.core.playbook_runs import PlaybookRun, PlaybookSchedule, RunState, TaskOutcome
from rm.typed import decoder_of

CHUNK = 500  # rows of one transaction: the leader's commits go on in between
PAUSE_S = 0.005
runs, outcomes, schedules = playbook_runs.c, playbook_outcomes.c, playbook_schedules.c
_run, _outcome, _schedule = decoder_of(PlaybookRun), decoder_of(TaskOutcome), decoder_of(PlaybookSchedule)


class SqlPlaybookRuns:
    """A `PlaybookRuns`; the store gives it the doors to its database."""

    def __init__(self, dialect: str, reading: Door, changing: Door) -> None:
        self._reading = reading
        self._changing = changing
        self._add = insert_of(
            dialect, playbook_outcomes
        ).on_conflict_do_nothing()  # what was recorded in doubt

    # ── runs ──

    def add(self, run: PlaybookRun) -> int:
        with self._changing("record a run of a playbook") as c:
            made = c.execute(sa.insert(playbook_runs).values(_run_row(run)).returning(runs.id))
            return int(made.scalar_one())

    def put(self, run: PlaybookRun) -> bool:
        where = sa.and_(runs.id == run.id, runs.ended_us.is_(None))
        with self._changing("record a run of a playbook") as c:
            return c.execute(sa.update(playbook_runs).where(where).values(_run_row(run))).rowcount > 0

    def interrupt(self, message: str, of_told: str, at_us: int) -> int:
        is_open = sa.select(playbook_runs).where(runs.ended_us.is_(None)).order_by(runs.id)
        found = self._sound("run", is_open, _read_run)
        return sum(
            self.put(replace(one, state=RunState.INTERRUPTED, ended_us=at_us, message=said))
            for one, said in ((one, of_told if one.told else message) for one in found)
        )

    def get(self, id: int) -> PlaybookRun | None:
        found = self._sound("run", sa.select(playbook_runs).where(runs.id == id), _read_run)
        return found[0] if found else None

    def newest(self, limit: int, before: int = 0, playbook: str = "") -> list[PlaybookRun]:
        query = sa.select(playbook_runs).order_by(runs.id.desc()).limit(limit)
        if before:
            query = query.where(runs.id < before)
        if playbook:
            query = query.where(runs.playbook == playbook)
        return self._sound("run", query, _read_run)

    # ── what tasks came to ──

    def record(self, run: int, found: Collection[TaskOutcome]) -> None:
        rows = [
            {"run": run, "number": one.number, "host": one.host, "status": one.status,
             "body": to_text(one, f"Task {one.number} of run {run}")}
            for one in found
        ]  # fmt: skip
        for at in range(0, len(rows), CHUNK):
            with self._changing("record tasks of a playbook") as c:
                c.execute(self._add, rows[at : at + CHUNK])

    def outcomes(
        self, run: int, after: int = 0, limit: int = 1000, host: str = "", statuses: Sequence[str] = ()
    ) -> list[TaskOutcome]:
        query = sa.select(playbook_outcomes).where(outcomes.run == run, outcomes.number > after)
        if host:
            query = query.where(outcomes.host == host)
        if statuses:
            query = query.where(outcomes.status.in_(statuses))
        return self._sound("task", query.order_by(outcomes.number).limit(limit), _read_outcome)

    def prune(self, before_us: int, most: int) -> int:
        over = sa.select(runs.id).where(runs.ended_us.is_not(None))
        beyond = over.order_by(runs.id.desc()).offset(most)
        with self._reading("look for old runs of playbooks") as c:
            found = set(c.scalars(over.where(runs.ended_us < before_us))) | set(c.scalars(beyond))
        for id in sorted(found):
            self._forget(id)
        return len(found)

    def _forget(self, run: int) -> None:
        oldest = sa.select(outcomes.number).where(outcomes.run == run).limit(CHUNK)
        some = sa.delete(playbook_outcomes).where(outcomes.run == run, outcomes.number.in_(oldest))
        while True:
            with self._changing("forget old runs of playbooks") as c:
                if c.execute(some).rowcount == 0:
                    c.execute(sa.delete(playbook_runs).where(runs.id == run))
                    return
            time.sleep(PAUSE_S)  # waiters for the lock get it

    # ── schedules ──

    def schedules(self) -> list[PlaybookSchedule]:
        query = sa.select(playbook_schedules).order_by(schedules.id)
        return self._sound("schedule", query, _read_schedule)

    def add_schedule(self, schedule: PlaybookSchedule) -> int:
        body = to_text(replace(schedule, id=0), "A schedule of a playbook")
        with self._changing("record a schedule") as c:
            made = c.execute(sa.insert(playbook_schedules).values(body=body).returning(schedules.id))
            return int(made.scalar_one())

    def put_schedule(self, schedule: PlaybookSchedule) -> bool:
        body = to_text(replace(schedule, id=0), f"Schedule {schedule.id} of a playbook")
        with self._changing("record a schedule") as c:
            change = sa.update(playbook_schedules).where(schedules.id == schedule.id).values(body=body)
            return c.execute(change).rowcount > 0

    def remove_schedule(self, id: int) -> bool:
        with self._changing("remove a schedule") as c:
            return c.execute(sa.delete(playbook_schedules).where(schedules.id == id)).rowcount > 0

    def _sound(self, kind: str, query: sa.Select[Any], value: Any) -> list[Any]:
        """What can be read; the rest is left out with a word."""
        purpose = f"read the playbooks' {kind}s"
        return around_damage(self._reading, purpose, lambda c: sound(kind, c.execute(query), value))


def _run_row(run: PlaybookRun) -> dict[str, Any]:
    body = to_text(replace(run, id=0), f"The run {run.id} of a playbook")
    return {"playbook": run.playbook, "ended_us": run.ended_us or None, "body": body}


def _read_run(row: Any) -> PlaybookRun:
    return replace(from_text(_run, row.body, f"The run {row.id} of a playbook"), id=row.id)


def _read_outcome(row: Any) -> TaskOutcome:
    return from_text(_outcome, row.body, f"Task {row.number} of the run {row.run} of a playbook")


def _read_schedule(row: Any) -> PlaybookSchedule:
    return replace(from_text(_schedule, row.body, f"The schedule {row.id} of a playbook"), id=row.id)
