"""Whose turn it is in a pass: one job after the other, and of a job array one element after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rm.arrays import lowest
from rm.core.jobs.elements import element_of, limited
from rm.core.model.job import Job
from rm.core.model.reasons import Reason
from rm.core.model.snapshot import Snapshot


class Turns:
    """An array has turns until all that may be placed has been, or until `end` is called for it: a pass looks
    at as many of its elements as it places, and one more."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._next_job = snapshot.next_job
        self._left: dict[int, int] = {}  # by array: elements that have not had their turn
        self._placed: Counter[int] = Counter()  # by array: how many more run at once by this pass

    def of(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Job]]:
        """(a pending job, what is to be placed of it), in the order of `jobs`: itself, or an element."""
        for job in jobs:
            if job.array is None:
                yield job, job
                continue
            self._left[job.id] = job.ready
            while left := self._left[job.id]:
                self._left[job.id] = left & (left - 1)
                yield job, element_of(job, lowest(left), self._next_job)

    def left(self, array: Job) -> int:
        """How many elements of the array have not had their turn."""
        return self._left[array.id].bit_count()

    def next_of(self, array: Job) -> Job:
        """One more of these, out of turn."""
        left = self._left[array.id]
        self._left[array.id] = left & (left - 1)
        return element_of(array, lowest(left), self._next_job)

    def end(self, job: Job) -> None:
        """The job has no further turn in this pass."""
        self._left[job.id] = 0

    def limit(self, job: Job) -> Reason | None:
        """Why the limit of its array keeps it from being placed now; None: it does not."""
        return limited(job, self._snapshot, self._placed[job.array_job or job.id])

    def placed(self, job: Job, in_line: bool = False) -> bool:
        """It was placed, or one of its elements: `in_line` behind another one. Was that its last turn?"""
        if not in_line and (job.array is not None or job.array_task is not None):
            self._placed[job.array_job or job.id] += 1
        if job.array is None:
            return True
        self._next_job += 1
        return not self._left[job.id]
