"""The store in memory: for the simulator and for tests. Survives its leader, not its process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rm.adapters.store.history_memory import HistoryTables, MemoryHistory
from rm.adapters.store.playbook_runs_memory import MemoryPlaybookRuns, PlaybookTables
from rm.adapters.store.results_memory import MemoryResults, ResultTables
from rm.core.jobs.dependents import named_by
from rm.core.model.acceptance import size_bytes
from rm.core.model.choice import Choice
from rm.core.model.host import Host, Zone
from rm.core.model.job import Job, JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.logs import KeptLog, LogName
from rm.core.model.network.links import LinkStats
from rm.core.people.audit import Act
from rm.core.people.token import Token
from rm.core.sharing.ended import SPANS_US, Heap, Sums, added_up
from rm.core.sharing.usage_query import Asked, answer
from rm.core.store import NO_DOORS, START, Batch, Damaged, Doors, Entry, Lease, Loaded, Measured, StoredAction
from rm.errors import StaleLeader, StoreError


@dataclass(slots=True)
class MemoryDatabase:
    """What several `MemoryStore`s share, as several daemons share one database."""

    cluster: str = ""
    version: int = 0
    epoch: int = 0
    holder: str = ""
    lease_expires_us: int = 0
    lease_us: int = 0
    doors: Doors = NO_DOORS
    next_job_id: int = 1
    next_action_id: int = 1
    last_seq: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    zones: dict[str, Zone] = field(default_factory=dict)
    actions: dict[int, StoredAction] = field(default_factory=dict)
    measurements: dict[tuple[str, str], LinkStats] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    journal: list[tuple[int, Entry]] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    last_act: int = 0
    acts: list[tuple[int, Act]] = field(default_factory=list)
    logs: dict[LogName, KeptLog] = field(default_factory=dict)
    job_steps: dict[StepName, JobStep] = field(default_factory=dict)
    choices: dict[int, Choice] = field(default_factory=dict)
    usage: dict[Heap, Sums] = field(default_factory=dict)
    history: HistoryTables = field(default_factory=HistoryTables)
    playbook_runs: PlaybookTables = field(default_factory=PlaybookTables)
    results: ResultTables = field(default_factory=ResultTables)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryStore:
    """A `Store` over a `MemoryDatabase`; one of its own unless one is given.

    It keeps the very objects it is given: entries and actions must not be changed afterwards.
    """

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self._db = database or MemoryDatabase()
        self._epoch: int | None = None
        self.history = MemoryHistory(self._db.history)
        self.playbook_runs = MemoryPlaybookRuns(self._db.playbook_runs)
        self.results = MemoryResults(self._db.results)

    def load(self, ended_after_us: int | None = None) -> Loaded:
        db = self._db
        with db.lock:
            named = named_by(db.jobs.values())
            return Loaded(
                version=db.version,
                next_job_id=db.next_job_id,
                next_action_id=db.next_action_id,
                cluster=db.cluster,
                jobs=tuple(
                    j
                    for _, j in sorted(db.jobs.items())
                    if not j.state.final
                    or j.id in named
                    or (ended_after_us is not None and _ended_after(j, ended_after_us))
                ),
                hosts=tuple(db.hosts.values()),
                zones=tuple(db.zones.values()),
                actions=tuple(a for _, a in sorted(db.actions.items())),
                measurements=tuple(Measured(a, b, s) for (a, b), s in sorted(db.measurements.items())),
                documents=tuple(sorted(db.documents.items())),
                tokens=tuple(t for _, t in sorted(db.tokens.items())),
            )

    def set_aside(self, damaged: Collection[Damaged], at_us: int) -> None:
        """Nothing here is ever damaged."""

    def aside(self) -> list[Damaged]:
        return []

    def commit(self, batch: Batch, expected_version: int) -> int:
        db = self._db
        with db.lock:
            if self._epoch is None or self._epoch != db.epoch:
                raise StaleLeader("This daemon does not lead the cluster (any more).")
            if db.version != expected_version:
                raise StaleLeader(f"The store is at version {db.version}, not at {expected_version}.")
            _refuse_used_ids(db, batch)
            _apply(db, batch)
            db.version += 1
            return db.version

    def lease(self) -> Lease:
        db = self._db
        with db.lock:
            return Lease(db.holder, db.epoch, db.lease_expires_us, db.lease_us, db.version, db.doors)

    def acquire_lease(
        self, holder: str, now_us: int, ttl_us: int, over: Lease | None = None, doors: Doors = NO_DOORS
    ) -> int | None:
        db = self._db
        with db.lock:
            if db.holder not in ("", holder) and self.lease() != over:
                return None
            db.holder, db.lease_expires_us, db.lease_us = holder, now_us + ttl_us, ttl_us
            db.doors = doors
            db.epoch += 1
            self._epoch = db.epoch
            return db.epoch

    def renew_lease(self, now_us: int, ttl_us: int) -> bool:
        db = self._db
        with db.lock:
            if self._epoch is None or self._epoch != db.epoch:
                return False
            db.lease_expires_us = now_us + ttl_us
            return True

    def epoch(self) -> int:
        with self._db.lock:
            return self._db.epoch

    def release_lease(self) -> None:
        db = self._db
        with db.lock:
            if self._epoch is not None and self._epoch == db.epoch:
                db.holder, db.lease_expires_us = "", 0
            self._epoch = None

    def jobs(
        self,
        *,
        states: Collection[JobState] | None = None,
        user: str | None = None,
        name: str | None = None,
        ended_after_us: int | None = None,
        limit: int | None = None,
        before_id: int | None = None,
        by_rests: bool = False,
    ) -> list[Job]:
        rests = by_rests and states is not None and JobState.CANCELLED in states
        with self._db.lock:
            found = [
                j
                for _, j in sorted(self._db.jobs.items())
                if (states is None or j.state in states or (rests and j.array and j.array.dropped))
                and (user is None or j.spec.user == user)
                and (name is None or j.spec.name == name)
                and (ended_after_us is None or not j.state.final or _ended_after(j, ended_after_us))
                and (before_id is None or j.id < before_id)
            ]
        return found if limit is None else found[max(0, len(found) - limit) :]

    def job(self, id: int) -> Job | None:
        with self._db.lock:
            return self._db.jobs.get(id)

    def elements(self, array: int, tasks: Collection[int] | None = None) -> list[Job]:
        with self._db.lock:
            of = [j for j in self._db.jobs.values() if j.array_job == array and j.array_task is not None]
        return sorted(
            (j for j in of if tasks is None or j.array_task in tasks), key=lambda j: j.array_task or 0
        )

    def choice(self, job: int) -> Choice | None:
        with self._db.lock:
            return self._db.choices.get(job)

    def logs(self, job: int) -> list[KeptLog]:
        with self._db.lock:
            return [log for name, log in sorted(self._db.logs.items()) if name.job == job]

    def job_steps(
        self, jobs: Collection[int], after: StepName | None = None, limit: int = 1000
    ) -> list[JobStep]:
        with self._db.lock:
            found = sorted(self._db.job_steps.items())
        wanted = [step for name, step in found if name.job in jobs and (after is None or name > after)]
        return wanted[:limit]

    def usage(self, asked: Asked) -> list[tuple[Heap, Sums]]:
        with self._db.lock:
            return answer(asked, self._db.usage)

    def prune_usage(self, hours_before_us: int, days_before_us: int) -> int:
        before_us = dict(zip(SPANS_US, (hours_before_us, days_before_us), strict=True))
        with self._db.lock:
            known = self._db.usage
            self._db.usage = {h: s for h, s in known.items() if h.start_us + h.span_us > before_us[h.span_us]}
            return len(known) - len(self._db.usage)

    def journal(self, after: int = 0, limit: int = 1000) -> list[tuple[int, Entry]]:
        with self._db.lock:
            return [(s, e) for s, e in self._db.journal if s > after][:limit]

    def journal_starts(self) -> list[tuple[int, int]]:
        with self._db.lock:
            return [(s, e.at_us) for s, e in self._db.journal if e.kind == START]

    def ids(self) -> set[int]:
        with self._db.lock:
            return set(self._db.jobs)

    def counts(self) -> dict[JobState, int]:
        with self._db.lock:
            return dict(Counter(job.state for job in self._db.jobs.values()))

    def prune(self, before_us: int, most: int | None = None, most_bytes: int | None = None) -> int:
        db = self._db
        with db.lock:
            ended_us = sorted((j.ended_us or 0 for j in db.jobs.values() if j.state.final), reverse=True)
            if most is not None and len(ended_us) > most:
                before_us = max(before_us, ended_us[most - 1] if most else ended_us[0] + 1)
            busy = {a.job for a in db.actions.values()}
            heavy = set() if most_bytes is None else _beyond(db, most_bytes)
            old = {
                j.id
                for j in db.jobs.values()
                if j.state.final
                and j.id not in busy
                and j.ended_us is not None
                and (j.ended_us < before_us or (j.array_job or j.id) in heavy)
            }
            # an array stays as long as one of its elements
            old -= {j.array_job for j in db.jobs.values() if j.id not in old}
            for id in old:
                del db.jobs[id]
            db.logs = {name: log for name, log in db.logs.items() if name.job in db.jobs}
            db.job_steps = {name: step for name, step in db.job_steps.items() if name.job in db.jobs}
            db.choices = {job: choice for job, choice in db.choices.items() if job in db.jobs}
            return len(old)

    def prune_journal(self, before_us: int) -> int:
        db = self._db
        with db.lock:
            kept = max((s for s, at_us in self.journal_starts() if at_us <= before_us), default=0)
            before = len(db.journal)
            db.journal = [(s, e) for s, e in db.journal if s >= kept]
            return before - len(db.journal)

    def acts(
        self, after: int = 0, limit: int = 1000, since_us: int = 0, user: str | None = None
    ) -> list[tuple[int, Act]]:
        with self._db.lock:
            return [
                (seq, act)
                for seq, act in self._db.acts
                if seq > after and act.at_us >= since_us and user in (None, act.user)
            ][:limit]

    def prune_acts(self, before_us: int) -> int:
        with self._db.lock:
            before = len(self._db.acts)
            self._db.acts = [(seq, act) for seq, act in self._db.acts if act.at_us >= before_us]
            return before - len(self._db.acts)

    def close(self) -> None:
        self._epoch = None


def _beyond(db: MemoryDatabase, most_bytes: int) -> set[int]:
    left: dict[str, int] = {}
    found = set()
    ended = (j for j in db.jobs.values() if j.state.final and j.array_task is None)
    for job in sorted(ended, key=lambda j: (j.ended_us or 0, j.id), reverse=True):
        user = job.spec.user
        left[user] = left.get(user, most_bytes) - size_bytes(job.spec)
        if left[user] < 0:
            found.add(job.id)
    return found


def _ended_after(job: Job, ended_after_us: int) -> bool:
    return job.ended_us is not None and job.ended_us >= ended_after_us


def _refuse_used_ids(db: MemoryDatabase, batch: Batch) -> None:
    for job in batch.jobs:
        if job.id < db.next_job_id and job.id not in db.jobs:
            raise StoreError(f"Job id {job.id} was given out before and cannot be used again.")
    seen: set[int] = set()
    for action in batch.actions:
        if action.id < db.next_action_id or action.id in seen:
            raise StoreError(f"Action id {action.id} was given out before and cannot be used again.")
        seen.add(action.id)


def _apply(db: MemoryDatabase, batch: Batch) -> None:
    for name in batch.removed_hosts:
        db.hosts.pop(name, None)
        for pair in [p for p in db.measurements if name in p]:
            del db.measurements[pair]
    for name in batch.removed_zones:
        db.zones.pop(name, None)
    for job in batch.jobs:
        db.jobs[job.id] = job
        db.next_job_id = max(db.next_job_id, job.id + 1)
    for host in batch.hosts:
        db.hosts[host.name] = host
    for zone in batch.zones:
        db.zones[zone.name] = zone
    for one in batch.measurements:
        db.measurements[one.source, one.destination] = one.stats
    for action in batch.actions:
        db.actions[action.id] = action
        db.next_action_id = max(db.next_action_id, action.id + 1)
    for id in batch.finished_actions:
        db.actions.pop(id, None)
    for name, body in batch.documents:
        if body is None:
            db.documents.pop(name, None)
        else:
            db.documents[name] = body
    for name in batch.removed_tokens:
        db.tokens.pop(name, None)
    for token in batch.tokens:
        db.tokens[token.id] = token
    for act in batch.acts:
        db.last_act += 1
        db.acts.append((db.last_act, act))
    for log in batch.logs:
        db.logs[log.name] = log
    for step in batch.job_steps:
        db.job_steps[step.name] = step
    db.choices.update(batch.choices)
    for heap, sums in added_up(batch.ended).items() if batch.ended else ():
        db.usage[heap] = db.usage[heap].plus(sums) if heap in db.usage else sums
    for entry in batch.events:
        db.last_seq += 1
        db.journal.append((db.last_seq, entry))
