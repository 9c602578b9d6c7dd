"""What becomes of a job whose GPUs do nothing (`rm.core.alerts.idle_gpus`)."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.handlers.ending import finish_if_over, stop_rest
from rm.core.jobs.mailing import mail_of
from rm.core.jobs.state import touch
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.units import format_elapsed


def idle(ctx: Context, job: Job, e: ev.GpusIdle) -> None:
    """Its user gets mail, and its resources come back if it is to stop: it ends as one that is cancelled."""
    said = f"its GPUs did nothing for {format_elapsed(e.idle_us)}"
    if e.mail:
        ctx.act(mail_of(job, f"GPUs idle, {format_elapsed(e.idle_us)}{', stopped' if e.stop else ''}"))
    if not e.stop:
        ctx.put(touch(job, ctx.now_us, said))
        return
    reason = Reason(ReasonCode.CANCELLED, f"stopped: {said}", (("idle_s", e.idle_us // 1_000_000),))
    job = touch(job, ctx.now_us, reason.message, ending=JobState.CANCELLED, reason=reason)
    finish_if_over(ctx, stop_rest(ctx, job, "cancel"))
