"""Jobs that stand still for a while: their processes are frozen, and what they hold stays theirs.

Each order to a host has a number, so that a repetition of an older one undoes nothing.
"""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Freeze
from rm.core.jobs.changes import Context
from rm.core.jobs.state import touch
from rm.core.model.job import Job, JobState
from rm.core.model.replacing import replace


def suspend(ctx: Context, job: Job, e: ev.SuspendRequested) -> None:
    """Freeze the processes of a job that runs, on all its hosts."""
    job = touch(job, ctx.now_us, f"suspended by {e.by}", state=JobState.SUSPENDED, suspended_us=ctx.now_us)
    _order(ctx, job, True)


def resume(ctx: Context, job: Job, e: ev.ResumeRequested) -> None:
    """Let them go on: the time limit goes on with them."""
    job = touch(job, ctx.now_us, f"resumed by {e.by}", state=JobState.RUNNING)
    _order(ctx, counted(job, ctx.now_us), False)


def counted(job: Job, now_us: int) -> Job:
    """The job with the time for which it stood still, when that is over."""
    if job.suspended_us is None:
        return job
    stood_us = job.stood_us + max(0, now_us - job.suspended_us)
    return replace(job, stood_us=stood_us, suspended_us=None)


def _order(ctx: Context, job: Job, frozen: bool) -> None:
    job = ctx.put(replace(job, freezes=job.freezes + 1))
    ctx.state.see_again(job)
    for host in dict.fromkeys(t.host for t in job.tasks if t.ended_us is None):
        ctx.act(Freeze(job.id, job.attempt, host, frozen, job.freezes))
