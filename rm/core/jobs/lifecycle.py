"""The only mutator: events knock, TRANSITIONS answers, anything else raises with the job's story."""

from __future__ import annotations

from itertools import islice

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Changes, Context, Rules
from rm.core.jobs.elements import begin
from rm.core.jobs.handlers import array_requests
from rm.core.jobs.handlers.cluster_events import CLUSTER_EVENTS, stray
from rm.core.jobs.handlers.dependency import settle
from rm.core.jobs.handlers.transitions import TRANSITIONS, handler_of
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job
from rm.core.model.replacing import replace
from rm.errors import IllegalTransition, Refusal

__all__ = ["TRANSITIONS", "Changes", "Rules", "apply", "story"]

# What a user may ask of a job, in the words of the refusal.
ASKED: dict[type, str] = {
    ev.CancelRequested: "cannot be cancelled",
    ev.HoldRequested: "cannot be held: only pending jobs can",
    ev.ReleaseRequested: "cannot be released: only pending jobs are held",
    ev.SuspendRequested: "cannot be suspended: only jobs that run can",
    ev.ResumeRequested: "cannot be resumed: only suspended jobs can",
    ev.RequeueRequested: "cannot be requeued now",
    ev.ArrayLimitSet: "is no job array: it has no limit of elements",
    ev.JobUpdated: "cannot be changed any more",
}


def apply(state: ClusterState, event: ev.Event, now_us: int, rules: Rules, changes: Changes) -> None:
    """Apply one event to the state and note the consequences in `changes`.

    Raises:
        IllegalTransition: the event asks something of a job that its state does not allow.
    """
    ctx = Context(state, now_us, rules, changes)
    _take(ctx, event)
    if state.dependents.stirred or state.dependents.to_judge:
        settle(ctx)


def go_on(state: ClusterState, now_us: int, rules: Rules, changes: Changes) -> None:
    """Judge what depends on the jobs of earlier steps, as far as these did not come to it."""
    if state.dependents.stirred or state.dependents.to_judge:
        settle(Context(state, now_us, rules, changes))


def note_waits(state: ClusterState, now_us: int, rules: Rules, changes: Changes, most: int) -> None:
    """Write down what jobs waited for reasons that are over, of the next `most` jobs: the rest follows."""
    if not state.waits.before:
        return
    ctx, before = Context(state, now_us, rules, changes), state.waits.before
    for number in list(islice(before, most)):
        waited = before.pop(number)
        if number in state.pending:
            ctx.put(replace(state.jobs[number], waited=waited))


def _take(ctx: Context, event: ev.Event) -> None:
    state = ctx.state
    on_cluster = CLUSTER_EVENTS.get(type(event))
    if on_cluster is not None:
        on_cluster(ctx, event)
        return
    if isinstance(event, ev.JobPlaced) and event.array_job:
        begin(ctx, event.array_job, event.array_task, event.job)
    job = state.jobs.get(event.job)  # type: ignore[union-attr]
    attempt = getattr(event, "attempt", None)
    if job is None or (attempt is not None and (attempt != job.attempt or not job.occupies)):
        _stale(ctx, job, event)
        return
    if job.array is not None:
        array_requests.take(ctx, job, event)
        return
    if getattr(event, "array_tasks", ""):
        raise IllegalTransition(f"Job {job.ref} is no job array: leave the index out.")
    handler = handler_of(job, type(event))
    if handler is None:
        ended = Refusal.ENDED if job.state.final else None
        raise IllegalTransition(f"Job {job.ref} is {job.state} and {refusal(event)}.", story(job), ended)
    handler(ctx, job, event)


def story(job: Job) -> str:
    """The job's last steps as one line, for errors and `rmx show`."""
    return "Its story: " + "; ".join(what for _, what in job.history[-6:]) + "."


def refusal(event: ev.Event) -> str:
    return ASKED.get(type(event), f"cannot take {type(event).__name__}")


def _stale(ctx: Context, job: Job | None, event: ev.Event) -> None:
    """News of an attempt that is over: its host must stop it, or forget it; the rest is noise."""
    attempt = getattr(event, "attempt", None)
    if attempt is None:
        raise IllegalTransition(f"Job {getattr(event, 'job', '?')} is not known and {refusal(event)}.")
    if job is not None and job.attempt == attempt and not isinstance(event, ev.TasksPrepared):
        return  # the current attempt has just ended; its collection is under way
    if isinstance(event, ev.TasksStarted):
        stray(ctx, ev.StrayFound(event.job, attempt, event.host, running=True))
    elif isinstance(event, ev.TaskExited | ev.TasksPrepared):
        stray(ctx, ev.StrayFound(event.job, attempt, event.host, running=False))
