"""What users ask of job arrays: of all elements, or of some.

Elements that have a job of their own take the request as any job does. Of several elements those that cannot
take it do not keep the others from it; a request that none can take is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm.arrays import JobId, each, text_of
from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.elements import at_once, chosen_of, drop, let_look, put_array, short
from rm.core.jobs.handlers.ending import missed
from rm.core.jobs.handlers.slicing import give_back
from rm.core.jobs.handlers.submitted_limits import refuse_again
from rm.core.jobs.handlers.transitions import handler_of
from rm.core.jobs.handlers.updating import update_array, update_elements
from rm.core.model.asked.array import Array
from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.errors import IllegalTransition, Refusal

Asked = (
    ev.CancelRequested
    | ev.HoldRequested
    | ev.ReleaseRequested
    | ev.RequeueRequested
    | ev.SuspendRequested
    | ev.ResumeRequested
)


def take(ctx: Context, record: Job, event: Any) -> None:
    """Apply a request to the record of an array.

    Raises:
        IllegalTransition: nothing of it is possible.
    """
    handler = HANDLERS.get(type(event))
    if handler is None:
        raise IllegalTransition(f"Job {record.id} is a job array and cannot take {type(event).__name__}.")
    handler(ctx, record, event)


def _cancel(ctx: Context, record: Job, e: ev.CancelRequested) -> None:
    array, chosen = _named(record, e)
    waiting, alive = array.has("waiting") & chosen, (array.has("requeued") | array.has("running")) & chosen
    if not waiting and not alive:
        raise _refused(record, e, "has ended already", Refusal.ENDED)
    if waiting:
        drop(ctx, record, waiting, Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}"))
    _each(ctx, record, alive, lambda job: ev.CancelRequested(job, e.by))


def _miss(ctx: Context, record: Job, e: ev.DeadlineMissed) -> None:
    assert record.array is not None
    drop(ctx, record, record.array.has("waiting"), missed(record))


def _hold(ctx: Context, record: Job, e: ev.HoldRequested) -> None:
    array, chosen = _named(record, e)
    waiting = array.has("waiting") & chosen
    if waiting:
        held = replace(
            array,
            held=text_of(array.has("held") | waiting),
            admin_held=text_of(array.has("admin_held") | (waiting if e.as_admin else 0)),
        )
        put_array(ctx, record, held, f"held by {e.by}: elements {short(waiting)}")
        ctx.state.enqueue(record.id)  # its reason may have changed
    own = _not_begun(ctx, record) & chosen
    done = _each(ctx, record, own, lambda job: replace(e, job=job, array_tasks=""))
    if not waiting and not done:
        raise _refused(record, e, "cannot be held: only pending jobs can")


def _release(ctx: Context, record: Job, e: ev.ReleaseRequested) -> None:
    array, chosen = _named(record, e)
    own = _not_begun(ctx, record) & chosen
    kept = 0 if e.as_admin else (array.kept | _admin_held(ctx, record, own)) & chosen
    waiting = array.has("waiting") & chosen & ~kept
    if waiting:
        left = replace(
            array,
            held=text_of(array.has("held") & ~waiting),
            admin_held=text_of(array.has("admin_held") & ~waiting),
        )
        put_array(ctx, record, left, f"released by {e.by}: elements {short(waiting)}")
        ctx.state.enqueue(record.id)
    done = _each(ctx, record, own & ~kept, lambda job: replace(e, job=job, array_tasks=""))
    if not waiting and not done:
        why = "an administrator holds it" if kept else "only pending jobs are held"
        raise _refused(record, e, f"cannot be released: {why}")


def _suspend(ctx: Context, record: Job, e: ev.SuspendRequested) -> None:
    array, chosen = _named(record, e)
    if not _each(ctx, record, array.has("running") & chosen, lambda job: ev.SuspendRequested(job, e.by)):
        raise _refused(record, e, "has no element that runs")


def _resume(ctx: Context, record: Job, e: ev.ResumeRequested) -> None:
    array, chosen = _named(record, e)
    if not _each(ctx, record, array.has("running") & chosen, lambda job: ev.ResumeRequested(job, e.by)):
        raise _refused(record, e, "has no element that is suspended")


def _requeue(ctx: Context, record: Job, e: ev.RequeueRequested) -> None:
    array, chosen = _named(record, e)
    if e.failed:
        chosen &= array.has("failed")
    dropped = 0 if e.failed else array.has("dropped") & chosen
    ended = each((array.has("completed") | array.has("failed") | array.has("cancelled")) & chosen)
    known, jobs = ctx.state.elements.get(record.id, {}), ctx.state.jobs
    again = [jobs[known[task]] for task in ended if known.get(task) in jobs]
    refuse_again(ctx.state, again, dropped.bit_count(), record)
    if dropped:
        waits = array.moved(dropped, "waiting")
        if e.hold:
            waits = replace(waits, held=text_of(waits.has("held") | dropped))
        record = replace(record, reason=record.reason if waits.dropped else None)
        record = put_array(ctx, record, waits, f"requeued by {e.by}: elements {short(dropped)}")
    own = array.has("running") | array.has("completed") | array.has("failed") | array.has("cancelled")
    done = _each(ctx, record, own & chosen, lambda job: ev.RequeueRequested(job, e.by, hold=e.hold))
    if not dropped and not done:
        raise _refused(record, e, "has no element that failed" if e.failed else "cannot be requeued now")


def _limit(ctx: Context, record: Job, e: ev.ArrayLimitSet) -> None:
    assert record.array is not None
    if not record.array.unfinished:
        raise _refused(record, e, "has ended already")
    put_array(ctx, record, replace(record.array, limit=e.limit), f"array limit set to {e.limit} by {e.by}")
    if 0 < e.limit < at_once(record.id, record.array, ctx.state.behind):
        _call_back(ctx, record)
    let_look(ctx, record.id)


def _call_back(ctx: Context, record: Job) -> None:
    """What waits on hosts in a slice would begin beside too many: its hosts give it back, unless they have
    begun it."""
    assert record.array is not None
    jobs = ctx.state.elements[record.id]
    for task in each(_not_begun(ctx, record) & record.array.has("running")):
        give_back(ctx, ctx.state.jobs[jobs[task]])


def _update(ctx: Context, record: Job, e: ev.JobUpdated) -> None:
    (update_elements if e.array_tasks else update_array)(ctx, record, e)


def _named(record: Job, e: Asked) -> tuple[Array, int]:
    assert record.array is not None
    return record.array, chosen_of(record, e.array_tasks)


def _admin_held(ctx: Context, record: Job, own: int) -> int:
    """Those of the elements with jobs of their own that an administrator holds."""
    state, known = ctx.state, ctx.state.elements.get(record.id, {})
    found = 0
    for task in each(own):
        job = state.jobs.get(known.get(task, 0))
        found |= (job is not None and job.admin_held) << task
    return found


def _not_begun(ctx: Context, record: Job) -> int:
    """The elements with jobs of their own that have not begun: those that were requeued, and those that wait
    on their hosts in a slice."""
    assert record.array is not None
    state, known = ctx.state, ctx.state.elements.get(record.id, {})
    waits = (
        task
        for task in each(record.array.has("running"))
        if (job := state.jobs.get(known.get(task, 0))) and job.waits_in_slice
    )
    return record.array.has("requeued") | sum(1 << task for task in waits)


def _each(ctx: Context, record: Job, chosen: int, event_of: Callable[[int], ev.Event]) -> int:
    """Ask it of the elements' own jobs; how many took it."""
    jobs = ctx.state.elements.get(record.id, {})
    done = 0
    for task in each(chosen):
        job = ctx.state.jobs.get(jobs.get(task, 0))
        if job is None:
            continue
        event = event_of(job.id)
        handler = handler_of(job, type(event))
        if handler is not None:
            handler(ctx, job, event)
            done += 1
    return done


def _refused(record: Job, e: ev.Event, why: str, refusal: Refusal | None = None) -> IllegalTransition:
    named = JobId(record.id, getattr(e, "array_tasks", ""))
    return IllegalTransition(f"Job {str(named)[:80]} {why}.", refusal=refusal)


HANDLERS: dict[type, Callable[[Context, Job, Any], None]] = {
    ev.CancelRequested: _cancel,
    ev.HoldRequested: _hold,
    ev.ReleaseRequested: _release,
    ev.SuspendRequested: _suspend,
    ev.ResumeRequested: _resume,
    ev.RequeueRequested: _requeue,
    ev.ArrayLimitSet: _limit,
    ev.JobUpdated: _update,
    ev.DeadlineMissed: _miss,
}
