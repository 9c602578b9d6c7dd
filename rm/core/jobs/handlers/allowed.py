"""The time that an attempt has: less than its time limit where a deadline or a reservation ends before."""

from __future__ import annotations

from rm.core.jobs.actions import SetLimit
from rm.core.jobs.changes import Context
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job, JobState
from rm.core.model.progress import attained_us
from rm.core.model.replacing import replace

LEAST_US = 1_000_000


def allowed_us(state: ClusterState, job: Job, begun_us: int, now_us: int) -> int | None:
    """From its begin until the job's deadline, and until the end of its reservation's window; None where its
    time limit is not longer than that."""
    spec, limit_us = job.spec, job.spec.time_limit_us
    reserved = state.reservations.get(spec.reservation)
    ends = (spec.deadline_us, reserved.open_until_us(now_us) if reserved is not None else None)
    last_us = min((end_us for end_us in ends if end_us is not None), default=None)
    if last_us is None:
        return None
    left_us = max(LEAST_US, last_us - begun_us)
    return left_us if limit_us is None or left_us < limit_us else None


def let_run(ctx: Context, job: Job) -> Job:
    """Let the hosts of a job that is placed know how long it may run now, since its time limit or its
    reservation was changed. Returns its version of now."""
    if job.state is JobState.COMPLETING:
        return job
    begun_us = ctx.now_us - attained_us(job, None, ctx.now_us)
    allowed = allowed_us(ctx.state, job, begun_us, ctx.now_us)
    limit_us, before_us = job.spec.time_limit_us, job.allowed_us
    reserved = ctx.state.reservations.get(job.spec.reservation)
    if reserved is not None and reserved.open_until_us(ctx.now_us) is None and before_us is not None:
        # its window has just closed, or was moved to come: it ends as it would have
        most_us = allowed or limit_us
        allowed = before_us if most_us is None or before_us < most_us else allowed
    job = ctx.put(replace(job, allowed_us=allowed))
    for host in dict.fromkeys(task.host for task in job.tasks if task.ended_us is None):
        ctx.act(SetLimit(job.id, job.attempt, host, allowed or limit_us or 0))
    return job
