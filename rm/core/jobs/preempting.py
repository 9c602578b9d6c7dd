"""A job that gives its hosts up to one that stands above it: what becomes of it, and of what it leaves.

For whom it went is noted in the state as a claim, until that job is placed or does not fit even so.
"""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.ending import finish_if_over, stop_rest
from rm.core.jobs.state import touch
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.sharing.accounts import REQUEUE


def preempt(ctx: Context, job: Job, e: ev.JobPreempted) -> None:
    """Stop it, with the grace and the signal of its QOS; it waits again where it may, and has ended else."""
    by, qos = ctx.state.jobs[e.by], ctx.state.accounts.qos_by_name.get(job.qos)
    said = f"preempted by job {by.id} of QOS {by.qos}"
    again = not job.go or (job.spec.requeue and qos is not None and qos.preempt_mode == REQUEUE)
    ending = JobState.PENDING if again else JobState.PREEMPTED
    reason = Reason(ReasonCode.PREEMPTED, said, (("preempting_job", by.id),))
    job = touch(job, ctx.now_us, said, ending=ending, reason=reason, preempted_by=by.id)
    ctx.state.claims.setdefault(by.id, {})[job.id] = None
    grace_us = int(qos.grace_s * 1e6) if qos is not None else 0
    if job.spec.warn_signal:
        job = stop_rest(ctx, job, "abort", warn_us=grace_us)
    else:
        job = stop_rest(ctx, job, "abort", grace_us=grace_us or None)
    finish_if_over(ctx, job)
