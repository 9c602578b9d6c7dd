"""What a change of one job means for the jobs that depend on it.

Each job keeps what has come of its dependencies in its own record. The first dependents of a job that ends
are judged in the same step, and the same commit; where there are many, the others in the next steps.
Until then the ended job stays in memory, and a restart reads it again: all are judged by how it ended, also
those whose turn comes when it has been requeued.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from rm.arrays import JobId, mask
from rm.core.jobs.changes import Context
from rm.core.jobs.dependents import (
    NamedAlike,
    PastJob,
    asked_for,
    counts_from_elements,
    group_of,
    is_singleton,
    judged,
)
from rm.core.jobs.elements import drop, short
from rm.core.jobs.state import ClusterState, touch
from rm.core.model.asked.dependency import Dependency, Standing, together
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.dependencies import AFTERCORR, SINGLETON

SHOWN = 5  # dependencies that a sentence names
CHANGED_WEIGHT = 10  # the commit of a dependent takes as long as judging that number of conditions
LISTED_WEIGHT = 25  # characters of a list of indices that are written in the time of one condition


def settle(ctx: Context) -> None:
    """Judge anew what depends on the jobs that have changed, until nothing changes any more or the step has
    done its part."""
    dependents, changes = ctx.state.dependents, ctx.changes
    while True:
        while dependents.stirred:
            stirred, dependents.stirred = dependents.stirred, {}
            for job_id in stirred:
                _heed(ctx, job_id)
        if changes.judged >= ctx.rules.judged_max or (found := dependents.next_to_judge()) is None:
            return
        awaited, waiting, then = found
        job = ctx.state.jobs.get(waiting)
        if job is not None:
            _judge(ctx, job, (awaited,), then)
            after = ctx.state.jobs[waiting]
            changed = after is not job
            changes.judged += _weight(after.dependencies) + (CHANGED_WEIGHT if changed else 0)


def _weight(judged_ones: Sequence[Dependency]) -> int:
    """About how many conditions take as long to judge: `aftercorr` writes its lists of indices anew."""
    written = sum(len(one.undecided) + len(one.met) + len(one.lost) for one in judged_ones if one.by_element)
    return len(judged_ones) + written // LISTED_WEIGHT


def _heed(ctx: Context, job_id: int) -> None:
    """What the change of a job means for itself, and for singletons of its name."""
    job = ctx.state.jobs.get(job_id)
    if job is None:
        return
    if job.dependencies:
        _watch(ctx, job)
    _settle_alike(ctx, ctx.state.jobs[job_id])


def _watch(ctx: Context, job: Job) -> None:
    dependents = ctx.state.dependents
    if job.state is not JobState.PENDING:
        dependents.forget(job)
        return
    if new := dependents.watch(job):
        _judge(ctx, job, new)
        job = ctx.state.jobs[job.id]
    lost = job.never if job.array is not None else job.depends is Standing.FAILED
    if lost and _ends(ctx, job):
        _cancel(ctx, job)


def _judge(ctx: Context, job: Job, named: Container[int], then: PastJob | None = None) -> None:
    """The job's dependencies on these jobs, as they are now; `then`: as this one was."""
    if job.state is JobState.PENDING:
        state = ctx.state
        _change(
            ctx,
            job,
            tuple(
                judged(one, then or state.jobs.get(one.job), ctx.now_us, _starts_us(one, state))
                if one.job in named
                else one
                for one in job.dependencies
            ),
        )


def _starts_us(one: Dependency, state: ClusterState) -> dict[int, int]:
    """When the elements in memory have started from which its delay counts."""
    if not counts_from_elements(one.kind, one.delay_us, one.tasks):
        return {}
    jobs = ((task, state.jobs[job_id]) for task, job_id in state.elements.get(one.job, {}).items())
    return {task: job.started_us for task, job in jobs if job.started_us is not None}


def _settle_alike(ctx: Context, job: Job) -> None:
    """Of jobs of one user and name at most one singleton may start: the first, when none runs."""
    state, group = ctx.state, group_of(job)
    alike = state.dependents.alike.get(group)
    if alike is None:
        if job.state is not JobState.PENDING or not is_singleton(job):
            return
        alike = state.dependents.alike[group] = NamedAlike()
        for other in state.dependents.namesakes(group, state.jobs.values()):
            alike.note(state.jobs[other])
    alike.note(job)
    if not (alike.pending or alike.placed):  # kept until then: to gather them again takes as long as they are
        del state.dependents.alike[group]
        return
    first = alike.next()
    for singleton in dict.fromkeys((alike.may_start, job.id, first)):
        if singleton is not None and singleton in alike.singletons:
            _let(ctx, state.jobs[singleton], singleton == first)
    alike.may_start = first


def _let(ctx: Context, job: Job, may_start: bool) -> None:
    if job.state is not JobState.PENDING:
        return  # an array whose last element has just been placed
    standing = Standing.FULFILLED if may_start else Standing.UNFULFILLED
    _change(
        ctx,
        job,
        tuple(replace(one, standing=standing) if one.kind == SINGLETON else one for one in job.dependencies),
    )


def _change(ctx: Context, job: Job, dependencies: tuple[Dependency, ...]) -> None:
    if dependencies == job.dependencies:
        return
    state = ctx.state
    for was, now in zip(job.dependencies, dependencies, strict=True):
        if now.standing is Standing.FULFILLED and was.standing is not Standing.FULFILLED and now.job:
            state.dependents.release(now.job, job.id)
    any_of = job.spec.any_dependency
    depends = together(dependencies, any_of)
    if depends is together(job.dependencies, any_of) or (depends is Standing.FAILED and _ends(ctx, job)):
        ctx.put(replace(job, dependencies=dependencies))
    else:
        ctx.put(touch(job, ctx.now_us, _story(depends, dependencies), dependencies=dependencies))
    state.enqueue(job.id)  # its reason has changed


def _story(depends: Standing, dependencies: tuple[Dependency, ...]) -> str:
    if depends is Standing.FAILED:
        return never(dependencies).message
    return f"its dependencies are {'fulfilled' if depends is Standing.FULFILLED else 'open again'}"


def _ends(ctx: Context, job: Job) -> bool:
    """Does it end when its dependencies can never be fulfilled? Source: sbatch(1), --kill-on-invalid-dep."""
    asked = job.spec.kill_on_invalid_dep
    return ctx.rules.cancel_never if asked is None else asked


def _cancel(ctx: Context, job: Job) -> None:
    reason = never(job.dependencies)
    if job.array is not None:
        drop(ctx, job, job.never, reason)
        return
    ctx.state.pending.pop(job.id, None)
    ctx.state.reasons.pop(job.id, None)
    what = f"cancelled: {reason.message}"
    ctx.put(touch(job, ctx.now_us, what, state=JobState.CANCELLED, ended_us=ctx.now_us, reason=reason))


def depending_now(
    spec: JobSpec, state: ClusterState, past: Iterable[PastJob], now_us: int
) -> tuple[Dependency, ...]:
    """The dependencies as they would be for a job that was submitted now."""
    asked, group = asked_for(spec, past, now_us), (spec.user, spec.name)
    free = Standing.FULFILLED
    if any(one.kind == SINGLETON for one in asked) and any(
        group_of(state.jobs[job_id]) == group for job_id in (*state.placed, *state.pending)
    ):
        free = Standing.UNFULFILLED
    return tuple(
        judged(one, state.jobs.get(one.job), now_us, _starts_us(one, state))
        if one.job
        else replace(one, standing=free)
        for one in asked
    )


def why_not(job: Job, now_us: int) -> Reason | None:
    """Why its dependencies keep a pending job from being placed now; None: they do not."""
    depends = job.depends
    if depends is Standing.FAILED:
        return never(job.dependencies)
    if depends is Standing.UNFULFILLED:
        left = [one for one in job.dependencies if one.standing is Standing.UNFULFILLED]
        between = " or " if job.spec.any_dependency else ", "
        said = f"waits for {listed(left, between)}"
        return Reason(ReasonCode.DEPENDENCY, said, (("unfulfilled", len(left)),))
    if now_us < job.delayed_until_us:
        wait_s = (job.delayed_until_us - now_us) / 1e6
        delayed = [one for one in job.dependencies if one.from_us > now_us]
        said = f"{listed(delayed, ', ')}: may not begin for another {wait_s:.0f} s"
        return Reason(ReasonCode.DEPENDENCY, said, (("wait_s", round(wait_s)),))
    return None


def never(dependencies: tuple[Dependency, ...]) -> Reason:
    """Why a job's dependencies will never be fulfilled."""
    failed = [one for one in dependencies if one.standing is Standing.FAILED or one.lost]
    ended = dict.fromkeys(map(_how_it_ended, failed))
    said = f"{listed(failed, ', ')} will never be fulfilled: {listed(list(ended), ', ')}"
    return Reason(ReasonCode.DEPENDENCY_NEVER, said, (("failed", len(failed)),))


def _how_it_ended(one: Dependency) -> str:
    if one.lost:
        return f"elements {short(mask(one.lost))} of job {one.job} did not complete"
    named = JobId(one.job, one.tasks)
    if one.kind == AFTERCORR and one.tasks:
        return f"job {named} did not complete"
    return f"job {named} ended {one.ended}" if one.ended else f"nobody knows any more how job {named} ended"


def listed(items: Sequence[object], between: str) -> str:
    more = [f"{len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return between.join([*map(str, items[:SHOWN]), *more])
