"""How far jobs have come: the estimates that service-based policies order by.

Ada-SRSF Sec. IV-A (remaining service), Tiresias (attained service). Estimates, not facts: they
are renewed while a job runs and are not durable.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.job import Job, JobState
from rm.units import MINUTE_US


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a running attempt: time served so far and the time it still needs if
    nothing disturbs it, both wall-clock microseconds of the whole gang (not times its GPUs)."""

    job: int
    attempt: int
    served_us: int
    remaining_us: int | None = None


def gpus_of(job: Job) -> int:
    """GPUs that the job's service is weighted with; a job without GPUs counts its tasks.

    With GPUs per host it is as many hosts as the job has, or before it is placed asks for at least.
    """
    spec = job.spec
    if spec.gpus_per_host:
        return spec.gpus_per_host * (len({task.host for task in job.tasks}) or spec.hosts_min or 1)
    return spec.ntasks * (spec.gpus_per_task or 1)


def remaining_us(job: Job, progress: Progress | None, now_us: int) -> int | None:
    """Expected time until the job is done, were it alone; None when nobody said.

    Reported progress comes first, then the declared run time less what has passed, then what is
    left of the time limit.
    """
    if progress is not None and progress.attempt == job.attempt and progress.remaining_us is not None:
        return progress.remaining_us
    total = job.spec.expected_us if job.spec.expected_us is not None else job.spec.time_limit_us
    if total is None:
        return None
    return max(0, total - attained_us(job, progress, now_us))


def attained_us(job: Job, progress: Progress | None, now_us: int) -> int:
    """Time that the current attempt has run, microseconds."""
    if progress is not None and progress.attempt == job.attempt:
        return progress.served_us
    if job.started_us is None or not job.occupies:
        return 0
    until_us = now_us if job.suspended_us is None else job.suspended_us
    return max(0, until_us - job.started_us - job.stood_us)


def expected_left_us(job: Job, progress: Progress | None, now_us: int) -> int | None:
    """How long the job is expected to run on, at most to the end of its time limit; None = nobody knows.

    One that has outlived its expectation is expected to need as long again as it is overdue, at least a
    minute.
    """
    left_us = remaining_us(job, progress, now_us)
    if left_us is None:
        return None
    spec = job.spec
    served_us = attained_us(job, progress, now_us)
    if left_us == 0:
        left_us = max(MINUTE_US, served_us - (spec.expected_us or served_us))
    if spec.time_limit_us is not None:
        ran_us = now_us - job.started_us - job.stood_us if job.started_us is not None else 0
        left_us = min(left_us, max(0, spec.time_limit_us - ran_us))
    return left_us


def likely_left_us(job: Job, progress: Progress | None, now_us: int) -> int | None:
    """How long the job will run on, on average; None = nobody knows.

    Of one that has only a time limit it is half of what is left of that: nothing says that it ends sooner or
    later.
    """
    if job.state is JobState.COMPLETING:
        return 0
    left_us = expected_left_us(job, progress, now_us)
    told = progress is not None and progress.attempt == job.attempt and progress.remaining_us is not None
    return left_us if left_us is None or told or job.spec.expected_us is not None else left_us // 2
