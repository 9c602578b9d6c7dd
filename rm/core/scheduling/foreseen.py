"""When pending jobs are expected to start: the cluster played forward by the code that decides.

Nothing else is submitted, no host is lost, and each job ends when its reports say, else after its expected
run time, else at its time limit. So a job behind one without any of these has no expected start. Traffic is
not aligned on the way: a job that would wait for its neighbours' traffic starts later than said. Of a long
queue its head is played. A play may take seconds, so it can be made in slices: others are served in between,
and it can be left at any time, with what is known by then.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.dependents import Dependents
from rm.core.jobs.instants import Instants
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.dependency import Standing
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.progress import attained_us, expected_left_us
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Touches
from rm.core.model.waited import Waits
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, in_order
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.lengths import PLAYS, Lengths
from rm.core.sharing.preempt_terms import terms_of

WAITING_MAX = 1_000  # jobs that are played, the first in the queue policy's order
STARTS_MAX = 300  # jobs whose start is worked out, the first to start
STEPS_MAX = 4 * STARTS_MAX
WIDER = 1.2  # than the plays say, at the late end: jobs that wait together are alike; docs/simulator.md
LATER = 0.15  # of the likely wait: jobs that come later delay one, and never hasten it; docs/simulator.md
SLICE_STEPS = 10  # of the cycle, some milliseconds each: nobody else is served meanwhile
ENDED = object()
WAITS_FOR_JOBS = "No start can be foreseen: it waits for other jobs."


@dataclass(frozen=True, slots=True)
class Start:
    """`at_us` if all jobs use up what they are expected to, on these hosts. In plays in which they end as
    those that have ended did it is half of the times by `likely_us`, and `soonest_us` in the earliest one. In
    the latest one it is before `latest_us`, which leaves room for jobs that come later."""

    job: int
    at_us: int
    soonest_us: int
    hosts: tuple[str, ...]
    likely_us: int
    latest_us: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`starts` by job; of an array its next element's. A job that is not among them starts later than
    `until_us`, or nobody knows (None: all that can be known is there). `unplayed`: the jobs behind the head
    of the queue, of which nothing is known. `dry`: nothing that is known lets what is left of the head start;
    `endless`: it waits while jobs hold hosts of which nobody knows when they end."""

    starts: dict[int, Start]
    until_us: int | None
    endless: bool = False
    dry: bool = False
    unplayed: frozenset[int] = frozenset()

    def no_start(self, job: Job) -> str:
        """Why a job has no start among these, as a sentence; a new one has the id 0."""
        if job.held:
            return "No start can be foreseen: it is held."
        if job.depends is Standing.FAILED:
            return "No start can be foreseen: its dependencies can never be fulfilled."
        if job.depends is Standing.UNFULFILLED:
            return WAITS_FOR_JOBS
        if job.id in self.unplayed:
            first = f"it is not among the first {WAITING_MAX:,} jobs of the queue, which are foreseen"
            return f"No start can be foreseen: {first}."
        if self.until_us is not None and not self.dry:
            at = datetime.fromtimestamp(self.until_us / 1e6, UTC)
            return f"It starts after {at:%Y-%m-%d %H:%M:%S} UTC: only the first to start are foreseen."
        if self.endless:
            why = "jobs without a time limit hold hosts, and nobody knows when they end"
            return f"No start can be foreseen: {why}."
        return "No start can be foreseen: no end of a job, and no time that is known, lets it start."


def copied(state: ClusterState) -> ClusterState:
    """A state of its own with the same jobs and hosts, whose silence lasts."""
    values: dict[str, Any] = {}
    for field in fields(ClusterState):
        value = getattr(state, field.name)
        if isinstance(value, Counter | Instants):
            value = value.copy()
        elif isinstance(value, dict):
            value = _copied_with_values(value)
        elif isinstance(value, set):
            value = set(value)
        values[field.name] = value
    own: dict[str, Any] = {
        "silent_since": {},
        "marks": {},
        "dependents": Dependents(),
        "touches": Touches(),
        "waits": Waits(),
        "ended": state.ended.copy(),
        "ledger": state.ledger.copy(),
        "tally": state.tally.copy(),
    }
    return ClusterState(**values | own)


def _copied_with_values(values: dict[Any, Any]) -> dict[Any, Any]:
    """The values of one dictionary are of one kind, and mostly of one that never changes: the leader does
    nothing else while it copies 50,000 of them."""
    if not isinstance(next(iter(values.values()), None), dict | set | list):
        return dict(values)
    return {key: one.copy() for key, one in values.items()}


def foresee(
    state: ClusterState,
    policies: Policies,
    rules: Rules,
    tuning: Tuning,
    now_us: int,
    new: JobSpec | None = None,
) -> Foreseen:
    """Of a copied state; `new`: a job that is not there yet, as 0."""
    playing = Playing(state, policies, rules, tuning, now_us, new)
    while not playing.go_on():
        pass
    return playing.found()


class Playing:
    """What `foresee` does, in slices. The arguments are the same."""

    def __init__(
        self,
        state: ClusterState,
        policies: Policies,
        rules: Rules,
        tuning: Tuning,
        now_us: int,
        new: JobSpec | None = None,
    ) -> None:
        self._late: _Played | None = None
        self._drawn: list[_Played] = []
        self._now_us = now_us
        self._steps = self._all(state, policies, rules, tuning, now_us, new)

    def go_on(self, steps: int = SLICE_STEPS) -> bool:
        """Play at most `steps` steps of the cycle; is everything played?"""
        return sum(1 for _ in islice(self._steps, steps)) < steps

    def found(self) -> Foreseen:
        """When everything is played, or earlier: then of the first to start, later ones are said to start
        when all jobs use up what they are expected to, or not at all."""
        assert self._late is not None
        starts = {}
        for job, (at_us, hosts) in self._late.starts.items():
            # a play that ended before the job started says only that it was later
            known = sorted(play.starts[job][0] if job in play.starts else at_us for play in self._drawn)
            known = [min(at_us, one) for one in known] or [at_us]
            likely_us = known[len(known) // 2]
            soonest_us = max(self._now_us, known[0])
            latest_us = likely_us + round(
                WIDER * (known[-1] - likely_us) + LATER * (likely_us - self._now_us)
            )
            latest_us = min(at_us, latest_us)
            starts[job] = Start(job, at_us, soonest_us, hosts, likely_us, latest_us)
        late = self._late
        return Foreseen(starts, late.until_us, late.endless, late.dry, late.unplayed)

    def _all(
        self,
        state: ClusterState,
        policies: Policies,
        rules: Rules,
        tuning: Tuning,
        now_us: int,
        new: JobSpec | None,
    ) -> Iterator[None]:
        lengths = Lengths(state.jobs.values(), now_us)
        self._late = _Played(copied(state), policies, rules, tuning, lengths, None)
        yield from self._late.steps(now_us, new)
        playing = []
        for number in range(PLAYS) if lengths else ():
            play = _Played(copied(state), policies, rules, tuning, lengths, number)
            self._drawn.append(play)
            playing.append(play.steps(now_us, new))
            yield
        while playing:  # step by step in turn: whoever leaves has them all equally far
            for steps in list(playing):
                if next(steps, ENDED) is ENDED:
                    playing.remove(steps)
                else:
                    yield


class _Played:
    """One play. Only the jobs that waited at its begin are noted."""

    def __init__(
        self,
        state: ClusterState,
        policies: Policies,
        rules: Rules,
        tuning: Tuning,
        lengths: Lengths,
        number: int | None,
    ) -> None:
        policies = replace(policies, comm=load("comm", "none"))
        self._cycle = Cycle(state, policies, rules, replace(tuning, slice_us=0))
        self._cycle.start_over(aligned=True)
        self._lengths, self._number = lengths, number  # None: all limits are used up
        self._ends: list[tuple[int, int, int]] = []  # at_us, job, attempt
        self._end_of: dict[int, int] = {}  # which of these holds
        self._standing: set[int] = set()  # for others
        self._waiting: set[int] = set()
        self._newest = 0
        self.starts: dict[int, tuple[int, tuple[str, ...]]] = {}
        self.until_us: int | None = None
        self.endless = False
        self.dry = False
        self.unplayed: frozenset[int] = frozenset()

    def steps(self, now_us: int, new: JobSpec | None) -> Iterator[None]:
        """Play it, and pause after each step of the cycle."""
        state = self._cycle.state
        self._shorten(now_us)
        for number in list(state.placed):
            self._note_end(state.jobs[number], now_us)
        events: list[ev.Event] = []
        if new is not None:
            self._newest = state.next_job
            self._waiting.add(self._newest)
            events = [ev.JobSubmitted(self._newest, new)]
        for _ in range(STEPS_MAX):
            events = self._step(events, now_us)
            self.until_us = now_us
            yield
            if not self._waiting or len(self.starts) >= STARTS_MAX:
                break
            if events:
                continue  # at once: what was placed has started
            due_us = self._cycle.next_due_us()
            times = [at for at in (self._ends[0][0] if self._ends else None, due_us) if at is not None]
            if not times:
                self.endless = any(number not in self._end_of for number in state.placed)
                self.dry = True
                self.until_us = now_us if self.unplayed else None
                return
            now_us = max(now_us, min(times))
            while self._ends and self._ends[0][0] <= now_us:
                at_us, number, attempt = heapq.heappop(self._ends)
                if self._end_of.get(number) == at_us:
                    events += _exits(state.jobs[number], attempt, now_us)
        self.until_us = now_us if self._waiting or self.unplayed else None

    def _shorten(self, now_us: int) -> None:
        state, queue = self._cycle.state, self._cycle.policies.queue
        self._waiting = set(state.pending)
        if len(state.pending) <= WAITING_MAX:
            return
        ordered = in_order((state.jobs[number] for number in state.pending), queue, state.snapshot(now_us))
        head = {job.id for job in ordered[:WAITING_MAX]}
        self.unplayed = frozenset(self._waiting - head)
        state.pending = {number: None for number in state.pending if number in head}
        self._waiting = set(head)

    def _step(self, events: list[ev.Event], now_us: int) -> list[ev.Event]:
        """What follows at once."""
        state, follows = self._cycle.state, list[ev.Event]()
        out = self._cycle.step(events, now_us)
        state.forget_finished()
        for event in out.recorded:
            if isinstance(event, ev.JobPreempted):
                self._note_preempted(event, now_us)
            if not isinstance(event, ev.JobPlaced):
                continue
            job = state.jobs[event.job]
            waited = event.array_job or event.job
            known = 0 if waited == self._newest else waited
            self.starts.setdefault(known, (now_us, event.placement.hosts))
            self._waiting.discard(waited)
            for host in event.placement.hosts:
                ranks = tuple(task.rank for task in event.placement.on(host))
                follows.append(ev.TasksStarted(job.id, job.attempt, host, now_us, ranks))
            self._note_end(job, now_us)
        for number in [n for n in self._standing if not _stands(state.jobs.get(n))]:
            self._standing.discard(number)
            if number in state.placed:
                self._note_end(state.jobs[number], now_us)
        return follows

    def _note_preempted(self, event: ev.JobPreempted, now_us: int) -> None:
        """It uses up its grace, or stands still."""
        job = self._cycle.state.jobs[event.job]
        if _stands(job):
            self._standing.add(job.id)
            self._end_of.pop(job.id, None)
            return
        self._end(job, now_us + max(1, self._grace_us(job, event.partition)))

    def _grace_us(self, job: Job, partition: str = "") -> int:
        """Of a job that is being stopped; `partition`: of the one that it gives way to, where known."""
        if not job.preempted_by:
            return self._cycle.rules.grace_us
        state = self._cycle.state
        by = state.jobs.get(job.preempted_by)
        above = partition or (by.spec.partition if by is not None else "")
        terms = terms_of(state.accounts, by.qos if by is not None else "", above, job)
        return terms.grace_us if terms is not None else 0

    def _end(self, job: Job, at_us: int) -> None:
        self._end_of[job.id] = at_us
        heapq.heappush(self._ends, (at_us, job.id, job.attempt))

    def _note_end(self, job: Job, now_us: int) -> None:
        if _stands(job):
            self._standing.add(job.id)
        if job.state is JobState.SUSPENDED:
            return
        if job.state is JobState.COMPLETING:  # its time limit counts no more
            self._end(job, max(now_us + 1, job.touched_us + self._grace_us(job)))
            return
        left_us = expected_left_us(job, self._cycle.state.progress.get(job.id), now_us)
        if job.allowed_us is not None:
            left_us = job.allowed_us if left_us is None else min(left_us, job.allowed_us)
        if left_us is not None:
            self._end(job, now_us + max(1, self._drawn_us(job, left_us, now_us)))

    def _drawn_us(self, job: Job, left_us: int, now_us: int) -> int:
        """What a job is expected to run on, in this play; one that reports its progress, or said how long it
        takes, does as it says."""
        progress = self._cycle.state.progress.get(job.id)
        told = progress is not None and progress.attempt == job.attempt and progress.remaining_us is not None
        if self._number is None or told or job.spec.expected_us is not None:
            return left_us
        drawn_us = self._lengths.left_us(job, attained_us(job, None, now_us), self._number)
        return left_us if drawn_us is None else min(left_us, drawn_us)


def _stands(job: Job | None) -> bool:
    """Does it stand still for others, and go on by itself?"""
    return job is not None and job.state is JobState.SUSPENDED and bool(job.yields_to)


def _exits(job: Job, attempt: int, now_us: int) -> list[ev.Event]:
    if job.attempt != attempt or not job.occupies:
        return []
    return [
        ev.TaskExited(job.id, attempt, task.host, task.rank, 0, 0, task.started_us or now_us, now_us)
        for task in job.tasks
        if task.ended_us is None
    ]
