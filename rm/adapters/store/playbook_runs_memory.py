"""Runs of playbooks in memory: for the simulator and for tests."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from rm.core.playbook_runs import PlaybookRun, PlaybookSchedule, RunState, TaskOutcome


@dataclass(slots=True)
class PlaybookTables:
    """What several `MemoryPlaybookRuns` share."""

    runs: dict[int, PlaybookRun] = field(default_factory=dict)
    outcomes: dict[int, dict[int, TaskOutcome]] = field(default_factory=dict)  # by run and number
    schedules: dict[int, PlaybookSchedule] = field(default_factory=dict)
    last_run: int = 0
    last_schedule: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryPlaybookRuns:
    """A `PlaybookRuns` over `PlaybookTables`."""

    def __init__(self, tables: PlaybookTables) -> None:
        self._t = tables

    def add(self, run: PlaybookRun) -> int:
        with self._t.lock:
            self._t.last_run += 1
            self._t.runs[self._t.last_run] = replace(run, id=self._t.last_run)
            return self._t.last_run

    def put(self, run: PlaybookRun) -> bool:
        with self._t.lock:
            known = self._t.runs.get(run.id)
            if known is None or known.ended_us:
                return False
            self._t.runs[run.id] = run
            return True

    def interrupt(self, message: str, of_told: str, at_us: int) -> int:
        with self._t.lock:
            found = [one for one in self._t.runs.values() if not one.ended_us]
            for one in found:
                said = of_told if one.told else message
                self.put(replace(one, state=RunState.INTERRUPTED, ended_us=at_us, message=said))
            return len(found)

    def get(self, id: int) -> PlaybookRun | None:
        with self._t.lock:
            return self._t.runs.get(id)

    def newest(self, limit: int, before: int = 0, playbook: str = "") -> list[PlaybookRun]:
        with self._t.lock:
            found = [
                one
                for id, one in sorted(self._t.runs.items(), reverse=True)
                if (not before or id < before) and playbook in ("", one.playbook)
            ]
        return found[:limit]

    def record(self, run: int, found: Collection[TaskOutcome]) -> None:
        with self._t.lock:
            known = self._t.outcomes.setdefault(run, {})
            for one in found:
                known.setdefault(one.number, one)

    def outcomes(
        self, run: int, after: int = 0, limit: int = 1000, host: str = "", statuses: Sequence[str] = ()
    ) -> list[TaskOutcome]:
        with self._t.lock:
            found = [
                one
                for number, one in sorted(self._t.outcomes.get(run, {}).items())
                if number > after and host in ("", one.host) and (not statuses or one.status in statuses)
            ]
        return found[:limit]

    def prune(self, before_us: int, most: int) -> int:
        with self._t.lock:
            over = sorted((id for id, one in self._t.runs.items() if one.ended_us), reverse=True)
            gone = {id for id in over if self._t.runs[id].ended_us < before_us} | set(over[most:])
            for id in gone:
                del self._t.runs[id]
                self._t.outcomes.pop(id, None)
            return len(gone)

    def schedules(self) -> list[PlaybookSchedule]:
        with self._t.lock:
            return [one for _, one in sorted(self._t.schedules.items())]

    def add_schedule(self, schedule: PlaybookSchedule) -> int:
        with self._t.lock:
            self._t.last_schedule += 1
            self._t.schedules[self._t.last_schedule] = replace(schedule, id=self._t.last_schedule)
            return self._t.last_schedule

    def put_schedule(self, schedule: PlaybookSchedule) -> bool:
        with self._t.lock:
            known = schedule.id in self._t.schedules
            if known:
                self._t.schedules[schedule.id] = schedule
            return known

    def remove_schedule(self, id: int) -> bool:
        with self._t.lock:
            return self._t.schedules.pop(id, None) is not None
