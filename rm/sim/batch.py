"""A batch workload on rm's own cycle: a job holds what it was given as long as it runs, beside whatever.

Unlike the worlds of `rmx sim run` nothing communicates, so that months of thousands of jobs are played in
seconds. What is measured is how long jobs wait, who gets how much, and how wrong expected starts are.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Gpu, Host
from rm.core.model.job import JobSpec
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.foreseen import copied, foresee
from rm.core.sharing.accounts import NO_ACCOUNTS, Accounts
from rm.core.sharing.ledger import Billing, Ledger
from rm.units import GIB

START_US = 1_000_000_000_000  # of the simulated time
KEPT = 2_000  # ended jobs of which expected starts learn


@dataclass(frozen=True, slots=True)
class Work:
    """A job that is submitted `at_us` after the begin and would run for `run_us`; by a user of whom fewer
    than `most_waiting` wait then (0: any number)."""

    at_us: int
    run_us: int
    spec: JobSpec
    most_waiting: int = 0


@dataclass(slots=True)
class Stay:
    """What became of one; times since the begin, `expected_us` was said when it came: (soonest,
    likely, latest, if all use up their limits)."""

    work: Work
    gpus: int
    start_us: int | None = None
    end_us: int | None = None
    expected_us: tuple[int, int, int, int] | None = None

    @property
    def wait_us(self) -> int | None:
        return None if self.start_us is None else self.start_us - self.work.at_us

    def held_us(self, until_us: int) -> int:
        """GPU-microseconds before that time."""
        if self.start_us is None:
            return 0
        end_us = until_us if self.end_us is None else min(self.end_us, until_us)
        return self.gpus * max(0, end_us - self.start_us)


@dataclass(frozen=True, slots=True)
class Played:
    stays: Sequence[Stay]
    gpus: int  # of the cluster
    until_us: int

    def utilisation(self, until_us: int) -> float:
        """Of the GPUs' time before then what jobs held."""
        return sum(one.held_us(until_us) for one in self.stays) / (self.gpus * until_us)


def hosts_of(count: int, gpus: int, cpus: int) -> list[Host]:
    """Equal hosts, as their agents would tell of them."""
    return [
        Host(
            name=f"h{number + 1}",
            zone="zone1",
            address=f"h{number + 1}",
            cpus=cpus,
            mem_bytes=1024 * GIB,
            gpus=tuple(Gpu(index, f"{number}-{index}", "GPU", 0) for index in range(gpus)),
        )
        for number in range(count)
    ]


@dataclass(slots=True)
class Batch:
    """One play: build it, and call `play` once. Of every `ask_each`-th job it is asked when it is expected to
    start, if it does not at once; 0: of none."""

    hosts: Sequence[Host]
    policies: Policies
    accounts: Accounts = NO_ACCOUNTS
    billing: Billing = field(default_factory=Billing)
    ask_each: int = 0
    tuning: Tuning = field(default_factory=Tuning)
    _stays: dict[int, Stay] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)  # by user
    _ends: list[tuple[int, int, int]] = field(default_factory=list)  # at_us, job, attempt

    def play(
        self,
        works: Iterable[Work],
        until_us: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Played:
        """Until all have ended, or until then."""
        queue = sorted(works, key=lambda one: one.at_us)
        state = ClusterState(ledger=Ledger(self.billing))
        cycle = Cycle(state, self.policies, Rules(), self.tuning)
        events: list[ev.Event] = [ev.AccountsSet(self.accounts, "root")] if self.accounts.accounts else []
        for host in self.hosts:
            events += (ev.HostAdded(host), ev.HostUp(host.name, "boot", "1"))
        cycle.step(events, START_US)
        came, over, now_us = 0, 0, START_US
        while came < len(queue) or self._ends:
            times = [self._ends[0][0]] if self._ends else []
            if came < len(queue):
                times.append(START_US + queue[came].at_us)
            if (due_us := cycle.next_due_us()) is not None:
                times.append(due_us)
            now_us = max(now_us, min(times))
            if until_us is not None and now_us >= START_US + until_us:
                break
            events = []
            while self._ends and self._ends[0][0] <= now_us:
                _, number, attempt = heapq.heappop(self._ends)
                events += self._exits(state, number, attempt, now_us)
                over += 1
            fresh: list[int] = []
            while came < len(queue) and START_US + queue[came].at_us <= now_us:
                work = queue[came]
                came += 1
                if 0 < work.most_waiting <= self._waiting[work.spec.user]:
                    continue
                self._waiting[work.spec.user] += 1
                number = state.next_job + len(fresh)
                self._stays[number] = Stay(work, _gpus_of(work.spec))
                events.append(ev.JobSubmitted(number, work.spec))
                fresh.append(number)
            self._step(cycle, events, now_us)
            self._ask(cycle, fresh, now_us)
            if progress is not None:
                progress(over, len(queue))
        gpus = sum(len(host.gpus) for host in self.hosts)
        return Played(tuple(self._stays.values()), gpus, now_us - START_US if until_us is None else until_us)

    def _step(self, cycle: Cycle, events: Sequence[ev.Event], now_us: int) -> None:
        """With what follows at once: what was placed has started."""
        while True:
            out = cycle.step(events, now_us)
            assert not out.refused, out.refused
            cycle.state.forget_finished(KEPT)
            started = list[ev.Event]()
            for event in out.recorded:
                if not isinstance(event, ev.JobPlaced):
                    continue
                job, stay = cycle.state.jobs[event.job], self._stays[event.job]
                stay.start_us = now_us - START_US
                self._waiting[job.spec.user] -= 1
                run_us = min(stay.work.run_us, job.spec.time_limit_us or stay.work.run_us)
                heapq.heappush(self._ends, (now_us + run_us, job.id, job.attempt))
                for host in event.placement.hosts:
                    ranks = tuple(task.rank for task in event.placement.on(host))
                    started.append(ev.TasksStarted(job.id, job.attempt, host, now_us, ranks))
            if not started:
                return
            events = started

    def _exits(self, state: ClusterState, number: int, attempt: int, now_us: int) -> list[ev.Event]:
        job, stay = state.jobs[number], self._stays[number]
        stay.end_us = now_us - START_US
        return [
            ev.TaskExited(number, attempt, task.host, task.rank, 0, 0, task.started_us or now_us, now_us)
            for task in job.tasks
        ]

    def _ask(self, cycle: Cycle, fresh: Sequence[int], now_us: int) -> None:
        state = cycle.state
        asked = [n for n in fresh if self.ask_each and n % self.ask_each == 0 and n in state.pending]
        if not asked:
            return
        found = foresee(copied(state), self.policies, cycle.rules, cycle.tuning, now_us)
        for number in asked:
            if (start := found.starts.get(number)) is not None:
                times = (start.soonest_us, start.likely_us, start.latest_us, start.at_us)
                soonest_us, likely_us, latest_us, at_us = (one - START_US for one in times)
                self._stays[number].expected_us = soonest_us, likely_us, latest_us, at_us


def held_by(stays: Iterable[Stay], until_us: int) -> Mapping[str, int]:
    """GPU-microseconds before that time, by user."""
    found: dict[str, int] = {}
    for one in stays:
        found[one.work.spec.user] = found.get(one.work.spec.user, 0) + one.held_us(until_us)
    return found


def _gpus_of(spec: JobSpec) -> int:
    return spec.gpus_per_task * spec.ntasks
