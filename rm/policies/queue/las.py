"""las: least attained service first.

Source: Tiresias (J. Gu et al., NSDI 2019), two-dimensional least attained service: time served so
far times GPUs. It needs no knowledge of how long a job takes: those that have had little come
first, so short jobs are soon done. Settled here:

* Nothing running is stopped for another job, so what a job has attained is the service of its
  earlier attempts (of jobs that lost a host or were requeued): those go behind jobs that have had
  nothing yet, which are served in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rm.core.model.job import Job
from rm.core.model.progress import attained_us, gpus_of
from rm.core.model.snapshot import Snapshot


class LasPolicy:
    """By microseconds served in all attempts times GPUs, then time of submission, then job id."""

    name = "las"

    def order(self, pending: Sequence[Job], snapshot: Snapshot) -> Iterable[Job]:
        def key(job: Job) -> tuple[int, int, int]:
            now_us = attained_us(job, snapshot.progress.get(job.id), snapshot.now_us)
            return (job.served_us + now_us) * gpus_of(job), job.submitted_us, job.id

        return sorted(pending, key=key)


POLICY = LasPolicy
