"""priority: the highest priority first, among equals first come, first tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rm.core.job import Job
from rm.core.snapshot import Snapshot


class PriorityPolicy:
    """By priority (highest first), then time of submission, then job id."""

    name = "priority"
    Options = None

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        return sorted(pending, key=lambda job: (-job.spec.priority, job.submitted_us, job.id))


POLICY = PriorityPolicy
