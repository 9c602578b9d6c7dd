"""What changes of a job after its submission: `rmx set`, on the job's own record or its array's.

Before the event comes, its maker has checked that some state of the cluster could take the changed job; what
depends on the moment is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator

from rm.core.jobs import events as ev
from rm.core.jobs.actions import SetLimit
from rm.core.jobs.changes import Context
from rm.core.jobs.dependents import asked_for, group_of, is_singleton, submission_of
from rm.core.jobs.elements import short
from rm.core.jobs.state import ClusterState, touch
from rm.core.model.acceptance import accept
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.job_update import GIVEN, SAID_ONLY, WHILE_RUNNING
from rm.core.model.replacing import replace
from rm.errors import IllegalTransition, UsageError


def update(ctx: Context, job: Job, e: ev.JobUpdated) -> None:
    """Change a job that waits, or of one that runs what may still change.

    Raises:
        IllegalTransition: the job's state does not allow it, or the job would wait for itself.
    """
    if job.array_task is not None:
        raise IllegalTransition(
            f"Job {job.ref} is an element of an array, and all of them share what was asked for.",
            f"Change the array: rmx set {job.array_job} ...",
        )
    spec = _changed(job.spec, e)
    if job.state is not JobState.PENDING:
        _refuse_fixed(job, e)
        _refuse_raise(job, e)
    changed = _put(ctx, job, spec, e)
    if changed.occupies:
        _limit(ctx, changed, e)
        ctx.state.see_again(changed)


def update_array(ctx: Context, record: Job, e: ev.JobUpdated) -> None:
    """Change a whole array: its elements share the specification.

    Raises:
        IllegalTransition: the array has ended, elements run that could not have got the change, or the array
            would wait for itself.
    """
    array = record.array
    assert array is not None
    if not array.unfinished:
        raise IllegalTransition(f"Job {record.id} has ended already.")
    own = [ctx.state.jobs[i] for i in ctx.state.elements.get(record.id, {}).values() if i in ctx.state.jobs]
    placed = [job for job in own if job.occupies]
    fixed = sorted(GIVEN & e.update.changed.keys())
    if placed and fixed:
        raise IllegalTransition(
            f"Elements {short(array.has('running'))} of job {record.id} run, with what was asked for: "
            f"{', '.join(fixed)} cannot change now.",
            "Hold the array, and change it when they have ended.",
        )
    if e.update.dependency is not None and array.has("waiting") != array.unfinished:
        raise IllegalTransition(f"Elements of job {record.id} have started: its dependencies are settled.")
    for job in placed:
        _refuse_raise(job, e)
    spec = _changed(record.spec, e)
    _put(ctx, record, spec, e)
    for job in own:
        changed = ctx.put(replace(job, spec=spec))
        if changed.occupies:
            _limit(ctx, changed, e)
            ctx.state.see_again(changed)
        elif changed.state is JobState.PENDING:
            ctx.state.enqueue(changed.id)


def _changed(spec: JobSpec, e: ev.JobUpdated) -> JobSpec:
    spec = e.update.applied(spec)
    try:
        accept(spec, runs=False)  # another change may have come between the question and this
    except UsageError as error:
        raise IllegalTransition(error.what, error.hint) from None
    return spec


def _refuse_fixed(job: Job, e: ev.JobUpdated) -> None:
    fixed = sorted(e.update.changed.keys() - WHILE_RUNNING)
    if fixed:
        raise IllegalTransition(
            f"Job {job.ref} is {job.state}: {', '.join(fixed)} cannot change any more.",
            f"Of a job that runs {', '.join(sorted(WHILE_RUNNING))} can.",
        )


def _refuse_raise(job: Job, e: ev.JobUpdated) -> None:
    """Source: scontrol(1), "TimeLimit": only administrators raise the limit of a job that runs."""
    new, old = e.update.time_limit_us, job.spec.time_limit_us
    if new is None or e.may_raise or job.state is JobState.PENDING or old is None:
        return
    if new == 0 or new > old:
        raise IllegalTransition(
            f"Job {job.ref} runs: only an administrator may raise its time limit.",
            "Its user may lower it, or requeue the job and raise it then.",
        )


def _put(ctx: Context, job: Job, spec: JobSpec, e: ev.JobUpdated) -> Job:
    """The new version of the job, with what was derived from the old one."""
    state = ctx.state
    new = touch(job, ctx.now_us, f"changed by {e.by}: {e.update}", spec=spec, updates=job.updates + 1)
    if e.update.dependency is not None:
        new = replace(new, dependencies=asked_for(spec, e.past, ctx.now_us))
        if _waits_for_itself(state, new):
            raise IllegalTransition(f"Job {job.ref} would wait for itself by '{spec.dependency[:80]}'.")
    if job.traffic is job.spec.traffic:
        new = replace(new, traffic=spec.traffic)
    ctx.put(new)
    # the index of dependents is made of lists and names, and made anew where one of them has changed
    renamed = group_of(job) != group_of(new) and state.dependents.named is not None
    if e.update.dependency is not None or renamed:
        state.judge_dependencies()
    if new.state is JobState.PENDING or new.array is not None:
        if not e.update.changed.keys() <= SAID_ONLY:
            state.capacity_version += 1  # other jobs may have their turn before it, or it may fit now
        state.reasons.pop(new.id, None)
        if new.id in state.pending:
            state.enqueue(new.id)
    return new


def _limit(ctx: Context, job: Job, e: ev.JobUpdated) -> None:
    """Let the hosts of a job that runs know of its new time limit."""
    if e.update.time_limit_us is None or job.state is JobState.COMPLETING:
        return
    limit_us = e.update.time_limit_us
    if job.allowed_us is not None:  # its deadline stays
        limit_us = min(limit_us or job.allowed_us, job.allowed_us)
    for host in dict.fromkeys(t.host for t in job.tasks if t.ended_us is None):
        ctx.act(SetLimit(job.id, job.attempt, host, limit_us))


def _waits_for_itself(state: ClusterState, job: Job) -> bool:
    seen: set[int] = set()
    next_ones = list(_awaited(state, job))
    while next_ones:
        awaited = next_ones.pop()
        if awaited == job.id:
            return True
        if awaited in seen:
            continue
        seen.add(awaited)
        other = state.jobs.get(awaited)
        if other is not None and other.state is JobState.PENDING:
            next_ones += _awaited(state, other)
    return False


def _awaited(state: ClusterState, job: Job) -> Iterator[int]:
    """The jobs before which this one cannot start."""
    yield from (one.job for one in job.dependencies if one.job)
    if is_singleton(job):
        for other in state.dependents.namesakes(group_of(job), state.jobs.values()):
            named = state.jobs[other]
            if other != job.id and (named.occupies or submission_of(named) < submission_of(job)):
                yield other
