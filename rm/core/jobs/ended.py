"""What the ended jobs in memory weigh: their number alone says little, where a script may have megabytes."""

from __future__ import annotations

from rm.core.model.acceptance import size_bytes
from rm.core.model.job import Job


class EndedJobs:
    """Those that are noted; `size_bytes` is of all their specifications. An element of an array has its
    array's, which counts once."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.size_bytes = 0

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
