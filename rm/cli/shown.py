"""What every list of jobs shows alike: what a job is called, how long it has run, when it ends, and moments.

Standard library only, so that the quick commands can use it.
"""

from __future__ import annotations

import time

from rm.shown_ids import shown_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rm.api.job_rows import JobRow
    from rm.api.jobs import Job


def called(job: Job) -> str:
    """Its number, of an array too; `36_2` for an element."""
    return shown_id(job.id, job.array_job, job.array_task)


def job_ref(job: Job) -> str:
    """What users call it: `36_2` for an element of an array, `36_[3-9%5]` for what waits of one."""
    array = job.array
    rest = "" if array is None else array.waiting or array.dropped
    limit = array.limit if array is not None and array.waiting else 0
    return shown_id(job.id, job.array_job, job.array_task, rest, limit)


def row_ref(row: JobRow) -> str:
    """The same of a row."""
    if row.array_task is None and not row.array_rest:
        return str(row.id)
    return shown_id(row.id, row.array_job, row.array_task, row.array_rest or "", row.array_limit)


def elapsed_us(job: Job | JobRow) -> int:
    """How long a job has run, or ran, without the time for which it was suspended: 0 before it starts, and
    where this machine's clock is late. Source: squeue(1), sacct(1): "Elapsed" of a suspended job."""
    if job.started_us is None:
        return 0
    until_us = job.ended_us or job.suspended_us or time.time_ns() // 1000
    return max(0, until_us - job.started_us - job.stood_us)


def ends_by_us(job: Job | JobRow, limit_us: int | None) -> int | None:
    """When it ended, or when its time limit ends it; None: no time is set."""
    if job.ended_us is not None or job.started_us is None or limit_us is None:
        return job.ended_us
    stood_us = job.stood_us
    if job.suspended_us is not None:
        stood_us += max(0, time.time_ns() // 1000 - job.suspended_us)
    return job.started_us + stood_us + limit_us


def moment(us: int | None, never: str = "N/A") -> str:
    """Microseconds since the epoch as local time to the second, as Slurm writes it; `never` for None."""
    return never if us is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(us // 1_000_000))


def exact_moment(us: int | None) -> str:
    """Local time with its offset, to the millisecond; "-" for None."""
    if us is None:
        return "-"
    from datetime import datetime

    return datetime.fromtimestamp(us / 1_000_000).astimezone().isoformat(" ", "milliseconds")
