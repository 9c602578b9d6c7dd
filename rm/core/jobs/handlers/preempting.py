"""A job that gives its hosts up to one that stands above it: what becomes of it, and of what it leaves.

For whom it went is noted in the state as a claim, until that job is placed or does not fit even so.
"""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.handlers.ending import finish_if_over, stop_rest
from rm.core.jobs.handlers.suspending import suspend_for
from rm.core.jobs.state import touch
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.sharing.accounts import REQUEUE, SUSPEND
from rm.core.sharing.preempt_terms import terms_of


def preempt(ctx: Context, job: Job, e: ev.JobPreempted) -> None:
    """Stop it, with its signal and the grace of its QOS or partition: it waits again where it may, and has
    ended else. Or let it stand still."""
    by = ctx.state.jobs[e.by]
    terms = terms_of(ctx.state.accounts, by.qos, e.partition or by.spec.partition, job)
    above = terms.above if terms is not None else f"of QOS {by.qos}"
    ctx.state.claims.setdefault(by.id, {})[job.id] = None
    if terms is not None and terms.mode == SUSPEND and job.go:
        suspend_for(ctx, job, by.id, f"suspended for job {by.id} {above}")
        return
    said = f"preempted by job {by.id} {above}"
    again = not job.go or (job.spec.requeue and terms is not None and terms.mode == REQUEUE)
    ending = JobState.PENDING if again else JobState.PREEMPTED
    reason = Reason(ReasonCode.PREEMPTED, said, (("preempting_job", by.id),))
    job = touch(job, ctx.now_us, said, ending=ending, reason=reason, preempted_by=by.id)
    grace_us = terms.grace_us if terms is not None else 0
    if job.spec.warn_signal:
        job = stop_rest(ctx, job, "abort", warn_us=grace_us)
    else:
        job = stop_rest(ctx, job, "abort", grace_us=grace_us or None)
    finish_if_over(ctx, job)
