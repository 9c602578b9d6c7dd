"""Whether a job whose dependencies change would come to wait for itself, by way of others.

A job that is submitted cannot: it names jobs that were there before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rm.arrays import each, mask
from rm.core.jobs.dependents import Group, group_of, is_singleton, submission_of
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobState
from rm.errors import IllegalTransition

CONDITIONS_MAX = 20_000  # of other jobs that are gone through: some milliseconds of the leader's
NAMESAKES = 10  # that are passed over in the time of one condition


def refuse_circle(state: ClusterState, job: Job) -> None:
    """`job`: as it would be; an array with those of its elements that wait as jobs of their own, whose
    dependencies are its.

    Raises:
        IllegalTransition: it would wait for itself, or for too many to tell.
    """
    elements = state.elements.get(job.id, {}).values() if job.array is not None else ()
    if _Search(state, job, frozenset((job.id, *elements))).finds_itself():
        raise IllegalTransition(f"Job {job.ref} would wait for itself by '{job.spec.dependency[:80]}'.")


@dataclass(slots=True)
class _Namesakes:
    """Pending jobs of a user and name that wait for yet others: (submission, id), the last one first."""

    left: list[tuple[int, int]]

    def before(self, submission: int) -> Iterator[int]:
        """Those that were submitted before, each once in a search."""
        while self.left and self.left[-1][0] < submission:
            yield self.left.pop()[1]


@dataclass(slots=True)
class _Search:
    state: ClusterState
    job: Job
    itself: frozenset[int]
    looked: int = 0
    seen: set[int] = field(default_factory=set)
    groups: dict[Group, _Namesakes] = field(default_factory=dict)

    def finds_itself(self) -> bool:
        further = list(self._awaited(self.job))
        while further:
            awaited = further.pop()
            if awaited in self.itself:
                return True
            if awaited in self.seen:
                continue
            self.seen.add(awaited)
            other = self.state.jobs.get(awaited)
            if other is not None and other.state is JobState.PENDING:
                further += self._awaited(other)
        return False

    def _awaited(self, one: Job) -> Iterator[int]:
        """The jobs before which it cannot start, as far as they could lead on: of an array its record, while
        some of those that are named wait there, and those that have left it, as the searched job is to do."""
        self._count(len(one.dependencies))
        for condition in one.dependencies:
            if condition.job:
                yield from self._named(condition.job, condition.tasks)
        if is_singleton(one):
            yield from self._alike(one)

    def _named(self, job_id: int, tasks: str) -> Iterator[int]:
        named = self.state.jobs.get(job_id)
        if named is None or named.array is None:
            yield job_id
            return
        array, job = named.array, self.job
        asked = mask(tasks) if tasks else ~0
        mine = 1 << job.array_task if job.array_job == named.id and job.array_task is not None else 0
        if asked & mine:
            yield job.id
        if array.has("waiting") & asked & ~mine:
            yield named.id
        requeued = array.has("requeued") & asked
        yield from (self.state.elements[named.id][task] for task in each(requeued))

    def _alike(self, one: Job) -> Iterator[int]:
        """The jobs of its name before which a singleton cannot start: those that run, and those before it."""
        group, submission = group_of(one), submission_of(one)
        job = self.job
        if (
            group_of(job) == group
            and one.id not in self.itself
            and (job.occupies or submission_of(job) < submission)
        ):
            yield job.id
        if group not in self.groups:
            self.groups[group] = self._waiting_alike(group)
        for other in self.groups[group].before(submission):
            self._count(1)
            yield other

    def _waiting_alike(self, group: Group) -> _Namesakes:
        jobs = self.state.jobs
        alike = self.state.dependents.namesakes(group, jobs.values())
        self._count(len(alike) // NAMESAKES)
        found = [
            (submission_of(other), other.id)
            for other in map(jobs.__getitem__, alike)
            if other.state is JobState.PENDING
            and other.id not in self.itself
            and any(one.job for one in other.dependencies)
        ]
        return _Namesakes(sorted(found, reverse=True))

    def _count(self, conditions: int) -> None:
        self.looked += conditions
        if self.looked > CONDITIONS_MAX:
            raise IllegalTransition(
                f"Job {self.job.ref} would wait for jobs with more than {CONDITIONS_MAX} dependencies, and "
                "nobody can tell in time whether one of them waits for it.",
                "Cancel it, and submit it again with these dependencies.",
            )
