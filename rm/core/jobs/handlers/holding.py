"""Jobs that are kept from starting until they are released. As in Slurm, a job that an operator or
administrator held is released by one of them alone, and not by its owner."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.state import touch
from rm.core.model.job import Job
from rm.errors import IllegalTransition


def hold(ctx: Context, job: Job, e: ev.HoldRequested) -> None:
    ctx.put(held(ctx, job, e))
    ctx.state.enqueue(job.id)  # its reason has changed


def release(ctx: Context, job: Job, e: ev.ReleaseRequested) -> None:
    ctx.put(released(ctx, job, e, losses=0, host_faults=0, not_before_us=0, requeues=0, unsure=False))
    ctx.state.enqueue(job.id)


def held(ctx: Context, job: Job, e: ev.HoldRequested) -> Job:
    """Its owner does not take the hold of an administrator over."""
    return touch(job, ctx.now_us, f"held by {e.by}", held=True, admin_held=e.as_admin or job.admin_held)


def released(ctx: Context, job: Job, e: ev.ReleaseRequested, **changes: object) -> Job:
    """
    Raises:
        IllegalTransition: somebody else has to release it.
    """
    if job.admin_held and not e.as_admin:
        raise IllegalTransition(f"Job {job.ref} cannot be released: an administrator holds it.")
    return touch(job, ctx.now_us, f"released by {e.by}", held=False, admin_held=False, **changes)
