"""Gives up hosts on which tasks of a stopped job never end: their processes cannot be killed, or the host
lies. Until then the job holds all of its hosts, and is charged for them."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.handlers.fencing import ended_after_us
from rm.core.jobs.state import ClusterState
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.leading.leader import Leader
from rm.errors import Conflict, RmError
from rm.units import SECOND_US

log = logging.getLogger(__name__)

PATIENCE_S = 30.0
EVERY_S = 10.0  # between two looks


@dataclass(frozen=True, slots=True)
class Left:
    """Tasks of a stopped attempt that have not ended, on a host."""

    job: int
    attempt: int
    host: str


@dataclass(frozen=True, slots=True)
class Seen:
    """`most_silent_us`: a silence of the host up to this says nothing, since after a longer one rm takes the
    tasks for lost."""

    answers: bool
    most_silent_us: int


@dataclass(slots=True)
class Waited:
    heard_us: int = 0
    silent_us: int = 0

    def go_on(self, by_us: int, answers: bool) -> None:
        if answers:
            self.heard_us += by_us
        else:
            self.silent_us += by_us

    def counts_us(self, most_silent_us: int) -> int:
        """A host that falls silent again and again gains no more by that than by one silence."""
        return self.heard_us + max(0, self.silent_us - most_silent_us)


class Unended:
    """Used in one thread. What was seen is lost with the daemon: the next one counts anew. `after_s` follows
    the time from the stop to SIGKILL: a grace that a QOS or a partition gives (for a job with `--signal` the
    time until SIGTERM), and `grace_s`."""

    def __init__(self, leader: Leader, clock: Clock, grace_s: float, after_s: float) -> None:
        self._leader = leader
        self._clock = clock
        self._grace_s, self._after_s = grace_s, after_s
        self._waited: dict[Left, Waited] = {}
        self._looked_us = 0

    def look(self) -> None:
        """Called every few seconds, never twice at once."""
        try:
            left, longest_s = self._leader.ask(see).result(PATIENCE_S)
        except (RmError, TimeoutError) as error:  # the leader stops, or the database is away
            log.warning("jobs that do not end cannot be looked for: %s", error or "the daemon was too busy")
            return
        now_us = self._clock.monotonic_us()
        went_us, self._looked_us = now_us - self._looked_us, now_us
        known, self._waited = self._waited, {}
        patience_s = longest_s + self._grace_s + self._after_s
        for one, seen in left.items():
            waited = self._waited[one] = known.get(one) or Waited()
            if one in known:
                waited.go_on(went_us, seen.answers)
            if waited.counts_us(seen.most_silent_us) >= patience_s * SECOND_US:
                future = self._leader.request(partial(given_up, one, patience_s))
                future.add_done_callback(partial(_tell, one))


def see(cycle: Cycle, now_us: int) -> tuple[dict[Left, Seen], float]:
    """…, and the longest grace that a QOS or a partition gives."""
    state = cycle.state
    graces = [one.grace_s for one in state.accounts.qos]
    graces += [one.grace_s for one in state.accounts.partitions]
    return {
        Left(job.id, job.attempt, task.host): Seen(
            answers(state, task.host), max(cycle.rules.down_after_us, ended_after_us(job))
        )
        for job in (state.jobs[job_id] for job_id in state.placed)
        if is_over(job)
        for task in job.tasks
        if task.ended_us is None
    }, max(graces, default=0.0)


def is_over(job: Job) -> bool:
    """One that waits again after its end is left alone: it would run twice."""
    return job.state is JobState.COMPLETING and job.ending not in (None, JobState.PENDING)


def answers(state: ClusterState, host: str) -> bool:
    found = state.hosts.get(host)
    return found is not None and found.state is HostState.UP


def given_up(one: Left, after_s: float, state: ClusterState) -> list[ev.Event]:
    job = state.jobs.get(one.job)
    ranks = tuple(t.rank for t in job.tasks if t.host == one.host and t.ended_us is None) if job else ()
    if job is None or job.attempt != one.attempt or not is_over(job) or not ranks:
        raise Conflict(f"Job {one.job} has ended on {one.host} meanwhile.")
    why = f"tasks of job {job.id} have not ended {after_s:.0f} s after they were stopped"
    return [
        ev.HostMisbehaved(one.host, why),
        ev.TasksLost(job.id, job.attempt, one.host, ranks, f"host {one.host} was given up: {why}"),
    ]


def _tell(one: Left, done: Future[Any]) -> None:
    if (error := done.exception()) is not None:
        log.info("job %d on %s: %s", one.job, one.host, error)
    else:
        log.warning("host %s is drained: tasks of job %d there do not end", one.host, one.job)
