"""What the ended jobs in memory weigh: their number alone says little, where a script may have megabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from rm.core.model.acceptance import size_bytes
from rm.core.model.job import Job


class EndedJobs:
    """Those that are noted; `size_bytes` is of all their specifications. An element of an array has its
    array's, which counts once."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.size_bytes = 0

    def copy(self) -> EndedJobs:
        own = EndedJobs()
        own._sizes, own.size_bytes = dict(self._sizes), self.size_bytes
        return own

    def note(self, job: Job) -> None:
        """A version of a job, which may have ended."""
        if job.state.final and job.array_task is None:
            size = size_bytes(job.spec)
            self.size_bytes += size - self._sizes.get(job.id, 0)
            self._sizes[job.id] = size
        elif job.id in self._sizes:
            self.forget(job.id)

    def forget(self, job: int) -> None:
        self.size_bytes -= self._sizes.pop(job, 0)

    def size_of(self, job: Job) -> int:
        return self._sizes.get(job.id, 0)


def from_heaviest(jobs: Iterable[Job], weight_of: Callable[[Job], int]) -> Iterator[Job]:
    """Each time the one that ended first of the user whose others weigh most, until none weighs anything; an
    array follows its elements. So nobody's jobs leave for those of a user who has more."""
    of_user: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=lambda j: (j.ended_us or 0, j.array is not None, j.id), reverse=True):
        of_user.setdefault(job.spec.user, []).append(job)
    heap = [(-sum(map(weight_of, own)), user) for user, own in of_user.items()]
    heapify(heap)
    while heap and heap[0][0]:
        weight, user = heap[0]
        job = of_user[user].pop()
        left = weight + weight_of(job)  # before it is forgotten
        yield job
        if of_user[user]:
            heapreplace(heap, (left, user))
        else:
            heappop(heap)
