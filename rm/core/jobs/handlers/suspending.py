"""Jobs that stand still for a while: their processes are frozen, and what they hold stays theirs.

A job that was suspended for others goes on by itself when these have ended.

Each order to a host has a number, so that a repetition of an older one undoes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Freeze
from rm.core.jobs.changes import Context
from rm.core.jobs.state import touch
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.errors import IllegalTransition

NAMED_MAX = 8


def suspend(ctx: Context, job: Job, e: ev.SuspendRequested) -> None:
    """Freeze the processes of a job that runs, on all its hosts."""
    job = touch(job, ctx.now_us, f"suspended by {e.by}", state=JobState.SUSPENDED, suspended_us=ctx.now_us)
    _order(ctx, job, True)


def resume(ctx: Context, job: Job, e: ev.ResumeRequested) -> None:
    """Let them go on: the time limit goes on with them.

    Raises:
        IllegalTransition: it stands still for other jobs.
    """
    if there := [by for by in job.yields_to if by in ctx.state.placed]:
        raise IllegalTransition(
            f"Job {job.ref} cannot be resumed: it was suspended for job {there[0]}, and goes on when "
            "that has ended."
        )
    ctx.state.yielding.discard(job.id)  # those that it stood still for were lost with their rows
    job = touch(moved_on(job), ctx.now_us, f"resumed by {e.by}", state=JobState.RUNNING, yields_to=())
    _order(ctx, counted(job, ctx.now_us), False)


def suspend_for(ctx: Context, job: Job, by: int, said: str) -> None:
    """Freeze it for another job, which has its processors until it ends; or for one more of these."""
    if by in job.yields_to:
        return
    reason = Reason(ReasonCode.PREEMPTED, said, (("preempting_job", by),))
    job = touch(job, ctx.now_us, said, yields_to=(*job.yields_to, by), reason=reason)
    ctx.state.yielding.add(job.id)
    if job.state is JobState.SUSPENDED:
        ctx.put(job)
        return
    _order(ctx, replace(job, state=JobState.SUSPENDED, suspended_us=ctx.now_us), True, lends=True)


def placed_over(ctx: Context, gone: Iterable[int], array: int, placed: int) -> None:
    """A job was placed for which these have gone, or stand still; of an array it has got its number now."""
    jobs, standing = ctx.state.jobs, list[int]()
    for number in gone:
        job = jobs.get(number)
        if job is None or (array or placed) not in job.yields_to:
            continue
        standing.append(number)
        if array:
            ctx.put(replace(job, yields_to=tuple(placed if by == array else by for by in job.yields_to)))
    if standing:
        named = ", ".join(jobs[number].ref for number in standing[:NAMED_MAX])
        named += ", …" if len(standing) > NAMED_MAX else ""
        which = f"jobs {named} stand" if len(standing) > 1 else f"job {named} stands"
        ctx.put(touch(jobs[placed], ctx.now_us, f"{which} still for it"))


def go_on_after(ctx: Context, gone: Job) -> None:
    """An attempt has left its hosts: those that stood still for it go on, or do so for those for which it
    stood still itself."""
    state = ctx.state
    for number in sorted(state.yielding):
        job = state.jobs[number]
        if gone.id not in job.yields_to:
            continue
        hosts = {*state.placed[number].placement.hosts}
        heirs = [by for by in gone.yields_to if not hosts.isdisjoint(_hosts_of(ctx, by))]
        parts = ((by,) if by != gone.id else heirs for by in job.yields_to)
        left = tuple(dict.fromkeys(by for part in parts for by in part))
        job = ctx.put(replace(job, yields_to=left))
        if not left:
            state.yielding.discard(number)
        if not left and job.state is JobState.SUSPENDED:
            what = f"goes on after job {gone.ref}"
            job = touch(job, ctx.now_us, what, state=JobState.RUNNING, reason=None)
            _order(ctx, counted(job, ctx.now_us), False)
        for host in state.placed[number].placement.hosts:
            state.recount(host)


def moved_on(job: Job) -> Job:
    """The job without the reason why it stood still for others, as soon as something else becomes of it."""
    reason = job.reason
    stood = job.yields_to and not job.preempted_by
    if not stood or reason is None or reason.code is not ReasonCode.PREEMPTED:
        return job
    return replace(job, reason=None)


def _hosts_of(ctx: Context, number: int) -> tuple[str, ...]:
    found = ctx.state.placed.get(number)
    return found.placement.hosts if found is not None else ()


def counted(job: Job, now_us: int) -> Job:
    """The job with the time for which it stood still, when that is over."""
    if job.suspended_us is None:
        return job
    stood_us = job.stood_us + max(0, now_us - job.suspended_us)
    return replace(job, stood_us=stood_us, suspended_us=None)


def _order(ctx: Context, job: Job, frozen: bool, lends: bool = False) -> None:
    job = ctx.put(replace(job, freezes=job.freezes + 1))
    ctx.state.see_again(job)
    for host in dict.fromkeys(t.host for t in job.tasks if t.ended_us is None):
        ctx.act(Freeze(job.id, job.attempt, host, frozen, job.freezes, lends))
