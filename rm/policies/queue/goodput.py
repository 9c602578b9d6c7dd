"""goodput: the jobs that get the most training out of a GPU come first.

Source: Pollux (A. Qiao et al., OSDI 2021): goodput is throughput times statistical efficiency, and the
cluster's goodput is what it maximises. Settled here:

* Batch size and workers are the user's, so the statistical efficiency of a job is what it is, and its
  throughput per GPU, as a share of what a GPU yields that never waits for the network, is
  T_grad / (T_grad + T_sync): the part of an iteration that is not communication.
* A job that has one task, communicates little, or whose traffic nobody knows yet counts as 1.
* Pollux also chooses workers and batch sizes, and moves jobs where that pays; none of this is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot


class GoodputPolicy:
    """By goodput per GPU, the highest first, then time of submission, then job id."""

    name = "goodput"

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        return sorted(pending, key=lambda job: (-goodput(job), job.submitted_us, job.id))


def goodput(job: Job) -> float:
    """Training per GPU, 1 = all of its time, for a gang on hosts of its own."""
    if job.traffic is None or job.spec.low_comm or job.spec.ntasks == 1:
        return 1.0
    return max(0.0, 1.0 - job.traffic.duty_cycle)


POLICY = GoodputPolicy
