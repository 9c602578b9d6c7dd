"""fifo: first come, first tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot


class FifoPolicy:
    """By time of submission, then job id."""

    name = "fifo"
    keeps_order = True

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        return sorted(pending, key=lambda job: (job.submitted_us, job.id))


POLICY = FifoPolicy
