"""Playbooks that are started by cron, as long as who scheduled them may start playbooks.

A time that passed while no daemon led is made up for within GRACE_US, later ones are not: nobody expects the
nightly restart at noon.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from rm.core.monitoring.mesh import Cron, Schedule
from rm.core.people.audit import Act, Outcome, clean
from rm.core.playbook_runs import PlaybookRun, PlaybookRuns, PlaybookSchedule
from rm.core.ports import Clock
from rm.errors import ConfigError, Conflict, NotFound, RmError, UsageError
from rm.units import HOUR_US

log = logging.getLogger(__name__)
GRACE_US = HOUR_US
SCHEDULES_MOST = 500


class Timers(Protocol):
    """`rm.adapters.cron.Timers`, as far as schedules are concerned."""

    def follow(
        self,
        name: str,
        schedule: Schedule,
        work: Callable[[], object],
        last_us: int = 0,
        jitter_us: int = 0,
        slip_us: int = 0,
    ) -> None: ...

    def forget(self, name: str) -> None: ...

    def next_us(self, name: str) -> int | None: ...


class Schedules:
    """`may_start`: whether this user's role is enough. `start` begins a run; `record` adds to the audit log.
    `check` raises ConfigError for a cron expression that names no time that comes again."""

    def __init__(
        self,
        *,
        runs: PlaybookRuns,
        clock: Clock,
        timers: Timers,
        start: Callable[[PlaybookSchedule], PlaybookRun],
        check: Callable[[str], object],
        may_start: Callable[[str], bool],
        record: Callable[[Act], object],
    ) -> None:
        self._runs, self._clock, self._timers = runs, clock, timers
        self._start, self._check, self._may_start, self._record = start, check, may_start, record

    def follow_all(self) -> None:
        """Those that are stored. Raises StoreError."""
        for one in self._runs.schedules():
            try:
                self._follow(one)
            except ConfigError as error:
                log.warning("schedule %d of the playbook %s: %s", one.id, one.playbook, error.what)

    def add(self, schedule: PlaybookSchedule) -> PlaybookSchedule:
        """Raises UsageError, Conflict and StoreError."""
        try:
            self._check(schedule.cron)
        except ConfigError as error:
            raise UsageError(error.what, error.hint or "Write five fields: 30 3 * * 1-5.") from None
        if len(self._runs.schedules()) >= SCHEDULES_MOST:
            raise Conflict(f"There are {SCHEDULES_MOST} schedules already.", "Remove some.")
        made = replace(schedule, id=self._runs.add_schedule(schedule))
        self._follow(made)
        return made

    def remove(self, id: int) -> PlaybookSchedule:
        """Raises NotFound."""
        found = self._find(id)
        if found is None or not self._runs.remove_schedule(id):
            raise NotFound(f"There is no schedule {id}.")
        self._timers.forget(_timer(id))
        return found

    def next_us(self, id: int) -> int | None:
        return self._timers.next_us(_timer(id))

    def _find(self, id: int) -> PlaybookSchedule | None:
        return next((one for one in self._runs.schedules() if one.id == id), None)

    def _follow(self, one: PlaybookSchedule) -> None:
        last_us = one.last_us or one.since_us
        work = partial(self._due, one.id)
        self._timers.follow(_timer(one.id), Cron(one.cron), work, last_us, slip_us=GRACE_US)

    def _due(self, id: int) -> None:
        try:
            self._begin(id)
        except RmError as error:
            log.warning("schedule %d of a playbook: %s", id, error.what)

    def _begin(self, id: int) -> None:
        """Raises StoreError."""
        one = self._find(id)
        if one is None:
            return
        one = replace(one, last_us=self._clock.now_us(), message="")
        try:
            earlier = self._runs.get(one.last_run) if one.last_run else None
            if earlier is not None and not earlier.state.over:
                raise Conflict(f"Run {earlier.id}, which it began before, is not over yet.")
            if not self._may_start(one.by):
                raise Conflict(f"{one.by} may not start playbooks any more.")
            one = replace(one, last_run=self._start(one).id)
        except RmError as error:
            one = replace(one, message=error.what)
        self._runs.put_schedule(one)  # before the log, which may be refused: a run is begun once
        if one.message:
            self._note(one, Outcome.REFUSED, one.message)
        else:
            self._note(one, Outcome.BEGUN, f"run {one.last_run}")

    def _note(self, one: PlaybookSchedule, outcome: Outcome, detail: str) -> None:
        act = Act(
            self._clock.now_us(), one.by, -1, "", "schedule", f"schedule {one.id}", "start_playbook",
            clean(f"playbook {one.playbook}"),
        )  # fmt: skip
        self._record(act.ended(outcome, clean(detail)))


def _timer(id: int) -> str:
    return f"playbook schedule {id}"
