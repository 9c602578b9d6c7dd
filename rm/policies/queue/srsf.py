"""srsf: shortest remaining service first.

Source: Ada-SRSF, Sec. IV-A, "Job Priority": the service of a job is its remaining time times its
GPUs. How long a job will communicate is not known before it is placed, so only what it declares
counts (E_J = 0): its expected run time, else its time limit. Settled here:

* A job without an expected run time comes after those with one.
* A job that was requeued begins anew: its remaining service is the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from rm.core.model.job import Job
from rm.core.model.progress import gpus_of, remaining_us
from rm.core.model.snapshot import Snapshot


class SrsfPolicy:
    """By remaining microseconds times GPUs, then time of submission, then job id."""

    name = "srsf"

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        def key(job: Job) -> tuple[float, int, int]:
            left_us = remaining_us(job, snapshot.progress.get(job.id), snapshot.now_us)
            service = inf if left_us is None else left_us * gpus_of(job)
            return service, job.submitted_us, job.id

        return sorted(pending, key=key)


POLICY = SrsfPolicy
