"""How a job ends, or an attempt of it: its tasks are stopped, its resources come back, its logs come home."""

from __future__ import annotations

from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Stop
from rm.core.jobs.changes import Context
from rm.core.jobs.handlers.suspending import counted, go_on_after, moved_on
from rm.core.jobs.state import touch
from rm.core.model.earlier_attempt import EarlierAttempt
from rm.core.model.job import Job, JobState, Task
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.sharing.ended import ended_parts

S = JobState
EARLIER_MAX = 100  # attempts that a job remembers


def hosts_of(tasks: tuple[Task, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.host for t in tasks))


def renewed(
    tasks: tuple[Task, ...], host: str, ranks: tuple[int, ...] | None, **changes: Any
) -> tuple[Task, ...]:
    """New versions of the tasks of `host` (those of `ranks`, or all that have not ended)."""
    return tuple(
        [
            replace(t, **changes)
            if t.host == host and (t.rank in ranks if ranks is not None else t.ended_us is None)
            else t
            for t in tasks
        ]
    )


def as_launched(tasks: tuple[Task, ...], e: ev.TasksPrepared | ev.TasksStarted) -> tuple[Task, ...]:
    """With what the answer to a launch says beside: notes, and the processors that are the job's own."""
    if e.notes:
        by_rank = dict(e.notes)
        tasks = tuple([replace(t, note=by_rank[t.rank]) if t.rank in by_rank else t for t in tasks])
    if e.cores:
        tasks = tuple([replace(t, cores=e.cores) if t.host == e.host else t for t in tasks])
    return tasks


def stop_rest(ctx: Context, job: Job, why: str, grace_us: int | None = None, warn_us: int = 0) -> Job:
    """Stop every task that has not ended, once. Where a gang is only prepared there is nothing to
    stop: its tasks end here, and `finish_if_over` lets the hosts forget them. `grace_us`: None = as the rules
    say; for `warn_us` see `Stop`."""
    if job.state is S.COMPLETING:
        return job
    job = replace(counted(moved_on(job), ctx.now_us), state=S.COMPLETING)
    left = tuple(t for t in job.tasks if t.ended_us is None)
    if not job.go:
        ended = {t.rank for t in left}
        tasks = tuple(replace(t, ended_us=ctx.now_us) if t.rank in ended else t for t in job.tasks)
        return ctx.put(replace(job, tasks=tasks))
    for host in hosts_of(left):
        grace = ctx.rules.grace_us if grace_us is None else grace_us
        ctx.act(Stop(job.id, job.attempt, host, grace, why, warn_us))
    return ctx.put(job)


def finish_if_over(ctx: Context, job: Job) -> None:
    """When the last task has ended: the final state, the resources back, the logs home.

    Every host of the attempt must forget it, also one that never answered: it may hold more
    than it could report.
    """
    ctx.put(job)
    for task in job.tasks:
        if task.ended_us is None:
            return
    for host in hosts_of(job.tasks):
        mine = [t for t in job.tasks if t.host == host]
        ranks = tuple(t.rank for t in mine if t.started_us is not None or t.exit_code is not None)
        if job.spec.runs_once:
            ranks = tuple(rank for rank in ranks if rank == 0)  # nothing else printed
        if all(t.silent for t in mine if t.rank in ranks):
            ranks = ()
        steps = job.spec.runs_once and any(t.rank == 0 and t.started_us is not None for t in mine)
        if ranks or steps:
            ctx.act(Collect(job.id, job.attempt, host, ranks, errors=bool(job.spec.error), steps=steps))
        else:
            ctx.act(Discard(job.id, job.attempt, host))
    ctx.state.vacate(job)
    go_on_after(ctx, job)
    if job.yields_to:
        job = replace(job, yields_to=(), reason=job.reason if job.ending else None)
    job = counted(job, ctx.now_us)
    ctx.changes.ended += ended_parts(job, ctx.state.hosts)
    if job.ending is S.PENDING:
        said = next((what for _, what in reversed(job.history)), "")  # a replayed job has no story
        why = job.reason.message if job.reason is not None else said
        back_to_queue(ctx, replace(job, earlier=with_earlier(job, why)))
        return
    worst = telling(job)
    final = job.ending or S.COMPLETED
    ctx.put(
        touch(
            job,
            ctx.now_us,
            f"ended {final}",
            state=final,
            ended_us=_ended_us(job, ctx.now_us),
            exit_code=worst.exit_code if worst else None,
            exit_signal=worst.exit_signal if worst else None,
        )
    )


def _ended_us(job: Job, now_us: int) -> int:
    """When the job's last task ended, as its host says: the daemon may hear of it much later. A job that
    never started ends now."""
    if job.started_us is None:
        return now_us
    return max(job.started_us, min(now_us, max((t.ended_us or 0 for t in job.tasks), default=now_us)))


def telling(job: Job) -> Task | None:
    """The task whose exit is the job's: the one that failed first, since rm then ended the others; else the
    worst."""
    ended = [t for t in job.tasks if t.exit_code is not None]
    if job.spec.runs_once:
        return next((t for t in ended if t.rank == 0), None)
    if S.FAILED in (job.ending, job.state):
        ended = [t for t in ended if t.rank == job.failed_rank] or ended
    return max(ended, key=lambda t: (bool(t.exit_code or t.exit_signal), t.exit_code or 0), default=None)


def back_to_queue(ctx: Context, job: Job) -> None:
    """It waits again; one that may have ended since a restored backup was made waits until it is released."""
    if job.unsure and not job.held:
        job = touch(job, ctx.now_us, "held: it may have run since the backup was made that was restored")
    ctx.put(
        replace(
            job,
            held=job.held or job.unsure,
            state=S.PENDING,
            served_us=job.served_us + ran_us(job),
            tasks=(),
            used=(),
            slowed=(),
            saved_us=0,
            waited=(),
            ending=None,
            started_us=None,
            ended_us=None,
            exit_code=None,
            exit_signal=None,
        )
    )
    ctx.state.changed[job.id] = None  # it avoids other hosts than when it waited last
    ctx.state.enqueue(job.id)


def missed(job: Job) -> Reason:
    """Why a job is cancelled that has waited for too long. Source: sbatch(1), --deadline."""
    need_s = (job.spec.time_min_us or job.spec.time_limit_us or 0) / 1e6
    said = f"it needs {need_s:.0f} s, and could not be over by its deadline any more"
    return Reason(ReasonCode.DEADLINE, said if need_s else "its deadline has passed")


def with_earlier(job: Job, why: str) -> tuple[EarlierAttempt, ...]:
    """The job's earlier attempts with the one that is over now."""
    worst = telling(job)
    ended = EarlierAttempt(
        job.attempt,
        hosts_of(job.tasks),
        job.started_us,
        max((t.ended_us for t in job.tasks if t.ended_us is not None), default=None),
        worst.exit_code if worst else None,
        worst.exit_signal if worst else None,
        why,
    )
    return (*job.earlier, ended)[-EARLIER_MAX:]


def ran_us(job: Job) -> int:
    """How long the attempt whose tasks have all ended ran; 0 if it never started."""
    if job.started_us is None:
        return 0
    return max(0, max((t.ended_us or 0 for t in job.tasks), default=0) - job.started_us)
