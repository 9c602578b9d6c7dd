"""themis: the job that is furthest behind what it would have reached alone comes first.

Source: Themis (K. Mahajan et al., NSDI 2020), finish-time fairness: rho = T_shared / T_ideal, the time
from submission to end in the shared cluster over the time with the cluster to itself. Settled here:

* T_shared is the job's age plus what it still needs: its expected run time (else its time limit) less
  what its earlier attempts were served. T_ideal is that expected run time.
* A job without an expected run time comes after those with one.
* Themis auctions GPUs to the jobs of the highest rho when leases end, and lets a job win fewer workers
  than it asked for. Here a gang is whole or waits, and one that does not fit is passed by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rm.core.model.job import Job
from rm.core.model.progress import attained_us
from rm.core.model.snapshot import Snapshot


class ThemisPolicy:
    """By finish-time fairness rho, the highest first, then time of submission, then job id."""

    name = "themis"

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        def key(job: Job) -> tuple[bool, float, int, int]:
            found = rho(job, snapshot)
            return found is None, -(found or 0.0), job.submitted_us, job.id

        return sorted(pending, key=key)


def rho(job: Job, snapshot: Snapshot) -> float | None:
    """Finish-time fairness if the job began now and were not disturbed; None = unknown, 1 = as alone."""
    alone_us = job.spec.expected_us if job.spec.expected_us is not None else job.spec.time_limit_us
    if alone_us is None:
        return None
    served_us = job.served_us + attained_us(job, snapshot.progress.get(job.id), snapshot.now_us)
    left_us = max(0, alone_us - served_us)
    return (snapshot.now_us - job.submitted_us + left_us) / max(1, alone_us)


POLICY = ThemisPolicy
