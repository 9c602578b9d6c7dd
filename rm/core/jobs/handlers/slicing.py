"""What may happen to an element that waits in a slice on its host, behind others of its array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.actions import HOLD, Stop
from rm.core.jobs.changes import Context
from rm.core.jobs.handlers.ending import hosts_of
from rm.core.jobs.handlers.holding import held, released
from rm.core.model.job import Job


def give_back(ctx: Context, job: Job) -> None:
    """Ask its host to give it back, unless that has begun it: what comes first decides."""
    for host in hosts_of(job.tasks):
        ctx.act(Stop(job.id, job.attempt, host, 0, HOLD))


def _hold(ctx: Context, job: Job, e: ev.HoldRequested) -> None:
    give_back(ctx, ctx.put(held(ctx, job, e)))


def _release(ctx: Context, job: Job, e: ev.ReleaseRequested) -> None:
    ctx.put(released(ctx, job, e))


# beside what is possible of any job in its state
IN_SLICE: dict[type, Callable[[Context, Job, Any], None]] = {
    ev.HoldRequested: _hold,
    ev.ReleaseRequested: _release,
}
