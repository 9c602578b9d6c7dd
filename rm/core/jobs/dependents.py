"""Which pending jobs wait for which others: an index, so that the end of a job concerns those alone that
named it.

It is derived from the jobs. `rm.core.jobs.handlers.dependency` keeps it in step with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush

from rm.arrays import each, mask, text_of
from rm.arrays import parse as parse_array
from rm.core.jobs.array_state import state_of
from rm.core.model.asked.array import Array
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.replacing import replace
from rm.dependencies import AFTER, AFTERANY, AFTERCORR, AFTEROK, SINGLETON, parse

Group = tuple[str, str]  # a user, and a name of jobs
NO_STARTS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class PastJob:
    """What a job was, of which only the store remembers all. `array`: what became of an array's elements;
    `starts_us`: when some of them started, by index.
    """

    id: int
    state: JobState
    started_us: int | None
    ended_us: int | None
    array: Array | None = None
    starts_us: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, job: Job, starts_us: Mapping[int, int] = NO_STARTS) -> PastJob:
        return cls(job.id, job.state, job.started_us, job.ended_us, job.array, tuple(starts_us.items()))


LEFT_OVER = 64  # entries of a heap that may be left over before it is made again


@dataclass(slots=True)
class NamedAlike:
    """Unfinished jobs of one user and one name, of which at least one was a singleton that waited."""

    placed: set[int] = field(default_factory=set)
    # a heap of (order, job); what is not in `pending` is left over
    queued: list[tuple[int, int]] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    singletons: set[int] = field(default_factory=set)  # of `pending`
    may_start: int | None = None  # what `next` answered last

    def note(self, job: Job) -> None:
        """What has become of one of them."""
        (self.placed.add if job.occupies else self.placed.discard)(job.id)
        if job.state is not JobState.PENDING:
            self.pending.discard(job.id)
            self.singletons.discard(job.id)
            return
        if job.id not in self.pending:
            self.pending.add(job.id)
            heappush(self.queued, (submission_of(job), job.id))
            if len(self.queued) > 2 * len(self.pending) + LEFT_OVER:
                self.queued = sorted(one for one in set(self.queued) if one[1] in self.pending)
        (self.singletons.add if is_singleton(job) else self.singletons.discard)(job.id)

    def leave(self, job: int) -> None:
        """It has another name now."""
        for those in (self.placed, self.pending, self.singletons):
            those.discard(job)

    def next(self) -> int | None:
        """The only one whose `singleton` may be fulfilled: the first that is pending, if none is placed."""
        while self.queued and self.queued[0][1] not in self.pending:
            heappop(self.queued)
        return self.queued[0][1] if self.queued and not self.placed else None


@dataclass(slots=True)
class Judging:
    """Jobs that are to be judged by what a job has become. `job`: as it was then, None as it is now."""

    waiting: Iterator[int]
    job: PastJob | None = None


@dataclass(slots=True)
class Dependents:
    """`awaited` has the pending jobs with a dependency on a job that is not fulfilled, by that job; `waiting`
    those that may not start for it; `stirred` the jobs that have changed since this was in step;
    `to_judge` those under a job that has started or ended since they were judged, by that job, and before
    them those that have not been judged by what it was until it was requeued;
    `named` the unfinished jobs by user and name, from the first singleton on."""

    awaited: dict[int, dict[int, None]] = field(default_factory=dict)
    alike: dict[Group, NamedAlike] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    stirred: dict[int, None] = field(default_factory=dict)
    to_judge: dict[int, list[Judging]] = field(default_factory=dict)
    named: dict[Group, dict[int, None]] | None = None

    def note(self, old: Job | None, job: Job) -> None:
        """A new version of a job."""
        if self.heeds(job):
            self.stirred[job.id] = None
        if job.id in self.awaited and (old is None or _come_of(old) != _come_of(job)):
            if old is not None and job.id in self.to_judge and _takes_back(old, job):
                self.to_judge[job.id][-1].job = PastJob.of(old)
            self.judge_all(job.id)
        if self.named is not None:
            self._name(self.named, job)

    def changed(self, old: Job, job: Job) -> None:
        """The job was noted with another list, or another name, than before: what it waits for is judged
        anew."""
        if old.dependencies != job.dependencies:
            self.forget(old)
            self.stirred[job.id] = None
        group = group_of(old)
        if group == group_of(job):
            return
        if self.named is not None:
            self._leave(self.named, group, job.id)
        if (alike := self.alike.get(group)) is not None:
            alike.leave(job.id)
            for singleton in alike.singletons:  # by any of them it is found which may start
                self.stirred[singleton] = None
                break

    def namesakes(self, group: Group, jobs: Iterable[Job]) -> Collection[int]:
        """The unfinished jobs of this user and name; `jobs` are all."""
        if self.named is None:
            self.named = {}
            for job in jobs:
                self._name(self.named, job)
        return self.named.get(group, ())

    def _name(self, named: dict[Group, dict[int, None]], job: Job) -> None:
        group = group_of(job)
        if not job.state.final:
            named.setdefault(group, {})[job.id] = None
        else:
            self._leave(named, group, job.id)

    @staticmethod
    def _leave(named: dict[Group, dict[int, None]], group: Group, job: int) -> None:
        if (those := named.get(group)) is not None:
            those.pop(job, None)
            if not those:
                del named[group]

    def heeds(self, job: Job) -> bool:
        """May the change of this job change what it waits for, or which singleton may start?"""
        if job.dependencies:
            return True
        return bool(self.alike) and group_of(job) in self.alike

    def watch(self, job: Job) -> set[int]:
        """Put a pending job under those that it waits for; the ones that are new there."""
        new = set()
        for one in job.dependencies:
            if one.job and one.standing is not Standing.FULFILLED:
                under = self.awaited.setdefault(one.job, {})
                if job.id not in under:
                    under[job.id] = None
                    new.add(one.job)
        (self.waiting.discard if job.depends is Standing.FULFILLED else self.waiting.add)(job.id)
        return new

    def judge_all(self, awaited: int) -> None:
        """All that wait for a job are to be judged by what it is now."""
        before = [one for one in self.to_judge.get(awaited, ()) if one.job is not None]
        self.to_judge[awaited] = [*before, Judging(iter(tuple(self.awaited[awaited])))]

    def next_to_judge(self) -> tuple[int, int, PastJob | None] | None:
        """(a job, one that waits for it, what the former was then; None: as it is now): each such job in
        turn, so that none with many holds up others."""
        while self.to_judge:
            awaited = next(iter(self.to_judge))
            left = self.to_judge.pop(awaited)
            while left:
                for waiting in left[0].waiting:
                    self.to_judge[awaited] = left
                    return awaited, waiting, left[0].job
                del left[0]
        return None

    def forget(self, job: Job) -> None:
        """The job waits no more."""
        self.waiting.discard(job.id)
        for one in job.dependencies:
            self.release(one.job, job.id)

    def release(self, awaited: int, job: int) -> None:
        under = self.awaited.get(awaited)
        if under is not None and under.pop(job, 0) is None and not under:
            del self.awaited[awaited]


def _come_of(job: Job) -> tuple[JobState | None, int | None, Array | None]:
    """What dependencies on a job ask for."""
    return job.state if job.state.final else None, job.started_us, job.array


def _takes_back(old: Job, job: Job) -> bool:
    """Is a start or an end, by which others may have been judged, no more? The job, or one of its elements,
    was requeued."""
    if old.array is not None and job.array is not None and old.array.ended & ~job.array.ended:
        return True
    return (old.state.final and not job.state.final) or (
        old.started_us is not None and job.started_us is None
    )


def group_of(job: Job) -> Group:
    return job.spec.user, job.spec.name


def submission_of(job: Job) -> int:
    """In which order jobs were submitted: an element of an array gets an id of its own only when it is
    placed, and jobs that wait for the array may have smaller ones."""
    return job.array_job or job.id


def is_singleton(job: Job) -> bool:
    return any(one.kind == SINGLETON for one in job.dependencies)


def named_by(jobs: Iterable[Job]) -> set[int]:
    """The jobs by which pending ones of these have not been judged, or could never start."""
    return {
        one.job
        for job in jobs
        if job.state is JobState.PENDING
        for one in job.dependencies
        if one.job and one.standing is not Standing.FULFILLED
    }


def asked_for(spec: JobSpec, past: Iterable[PastJob], now_us: int) -> tuple[Dependency, ...]:
    """The dependencies of a new job, judged as far as they name jobs of the past."""
    known = {one.id: one for one in past}
    made = (
        Dependency(
            one.kind,
            one.job,
            one.delay_us,
            tasks=one.tasks,
            undecided=text_of(parse_array(spec.array).mask) if one.kind == AFTERCORR and spec.array else "",
        )
        for one in parse(spec.dependency).of
    )
    return tuple(judged(one, known[one.job], now_us) if one.job in known else one for one in made)


def counts_from_elements(kind: str, delay_us: int, tasks: str) -> bool:
    """Does the delay of such a condition count from the start of elements of an array?"""
    return kind == AFTER and delay_us > 0 and bool(tasks)


def judged(
    one: Dependency, named: Job | PastJob | None, now_us: int, starts_us: Mapping[int, int] = NO_STARTS
) -> Dependency:
    """What has come of a dependency on a job; None: there is no record of that job any more.

    `starts_us`: when its elements started, by index, as far as it is known. A job that was never started
    counts as ended for `after` (sbatch(1): "start or are cancelled").
    """
    if one.standing is Standing.FULFILLED:
        return one
    if named is not None and named.array is not None and not one.array:
        one = replace(one, array=True)
    if one.by_element:
        return _judged_by_element(one, named)
    if named is None:
        return _unrecorded(one)
    if one.tasks and named.array is not None:
        known = {**dict(named.starts_us), **starts_us} if isinstance(named, PastJob) else starts_us
        named = _elements(mask(one.tasks), named.array, named, known, now_us)
    state = named.state
    if one.kind == AFTER:
        since_us = named.started_us
        if since_us is None and state.final:
            since_us = named.ended_us or 0
        if since_us is None:
            return _waits(one)
        from_us = since_us + one.delay_us if one.delay_us else 0
        return replace(one, standing=Standing.FULFILLED, from_us=from_us)
    if not state.final:
        return _waits(one)
    well = state is JobState.COMPLETED
    met = one.kind == AFTERANY or (one.kind in (AFTEROK, AFTERCORR)) is well
    standing = Standing.FULFILLED if met else Standing.FAILED
    return replace(one, standing=standing, ended=state.value)


def _elements(
    tasks: int, array: Array, named: Job | PastJob, starts_us: Mapping[int, int], now_us: int
) -> PastJob:
    """Some elements of an array together. They have started when all of them have got their hosts or were
    cancelled. Where nobody knows when an element did, it is now, or when the array ended: not too early."""
    some = array.only(tasks)
    started = not (some.waiting or some.requeued)
    latest_us = now_us if named.ended_us is None else named.ended_us
    since_us = latest_us
    if started and starts_us:
        since_us = min(latest_us, max(starts_us.get(task, latest_us) for task in each(tasks)))
    return PastJob(named.id, state_of(some), since_us if started else None, latest_us)


def _judged_by_element(one: Dependency, named: Job | PastJob | None) -> Dependency:
    """`aftercorr`: each element asks whether the one of the same index has ended COMPLETED."""
    met = _read(one.met)
    left = _read(one.undecided) | _read(one.lost)
    lost = left  # nobody knows any more how they ended
    if named is not None:
        array = named.array
        well = array.has("completed") if array is not None else -(named.state is JobState.COMPLETED)
        over = array.ended if array is not None else -named.state.final
        met, left = met | (left & well), left & ~well
        lost = left & over
    undecided = left & ~lost
    standing = Standing.FAILED if lost else Standing.FULFILLED
    return replace(
        one,
        standing=Standing.UNFULFILLED if undecided else standing,
        undecided=_written(undecided),
        met=_written(met),
        lost=_written(lost),
    )


@lru_cache(maxsize=64)
def _read(listed: str) -> int:
    """The indices of a list. Those of dependencies are kept apart from others: each end of an element writes
    lists of its array, and reading one of 100,000 indices takes tens of milliseconds."""
    return mask(listed)


def _written(indices: int) -> str:
    listed = text_of(indices)
    _read(listed)  # while it is known
    return listed


def _waits(one: Dependency) -> Dependency:
    """Also of one that had failed: the job that it names was requeued."""
    return replace(one, standing=Standing.UNFULFILLED, ended="") if one.ended else one


def _unrecorded(one: Dependency) -> Dependency:
    """It is over, and nobody knows how it ended: a job that asks for that must not start."""
    if one.standing is Standing.FAILED:
        return one
    met = one.kind in (AFTER, AFTERANY)
    return replace(one, standing=Standing.FULFILLED if met else Standing.FAILED, ended="")
