"""One job's transitions: what each event does to a job in each of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Discard, Launch, Start
from rm.core.jobs.changes import Context
from rm.core.jobs.handlers.allowed import allowed_us
from rm.core.jobs.handlers.ending import (
    as_launched,
    back_to_queue,
    finish_if_over,
    hosts_of,
    missed,
    renewed,
    stop_rest,
    with_earlier,
)
from rm.core.jobs.handlers.holding import hold, release
from rm.core.jobs.handlers.idle_gpus import idle
from rm.core.jobs.handlers.preempting import preempt
from rm.core.jobs.handlers.slicing import IN_SLICE
from rm.core.jobs.handlers.submitted_limits import refuse_again
from rm.core.jobs.handlers.suspending import moved_on, placed_over, resume, suspend
from rm.core.jobs.handlers.updating import update
from rm.core.jobs.handlers.verdict import FENCED, REQUEUE, UNSTARTED, WORDS, verdict_of
from rm.core.jobs.mailing import share_mail
from rm.core.jobs.state import touch, with_line
from rm.core.model.job import Job, JobState, Task
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import copier, replace
from rm.core.model.used import with_told
from rm.protocol.codes import Code

S = JobState
# The agent's refusals that no other host would answer differently: the job itself is at fault.
JOB_FAULTS = frozenset({Code.ROOT_REFUSED, Code.BAD_REQUEST})
# Refusals that every other job would meet on that host too: it is drained until it can write its spool again.
HOST_FAULTS = frozenset({Code.NO_SPACE, Code.NO_DESCRIPTORS, Code.SPOOL})
MAX_LAUNCH_FAILURES = 3
# A job whose hosts are lost soon after it started, again and again, may be the cause: it must not take down
# one host after the other. An attempt that ran for this long ends such a row.
INNOCENT_US = 3_600_000_000
LOSS_BACKOFF_US, LONGEST_BACKOFF_US = 5_000_000, 3_600_000_000
_placed = copier(
    Job, "history", "touched_us", "state", "attempt", "placed_us", "tasks", "go", "master_port", "allowed_us",
    "mailed_share", "freezes", "stood_us", "suspended_us", "yields_to", "failed_rank", "fence_grace_us",
    "reason", "ending", "started_us", "ended_us", "exit_code", "exit_signal", "slice_of", "unsure",
    "partition", "preempted_by",
)  # fmt: skip


def _place(ctx: Context, job: Job, e: ev.JobPlaced) -> None:
    hosts = e.placement.hosts
    job = _placed(
        job,
        history=with_line(job, ctx.now_us, f"placed on {', '.join(hosts)}"),
        touched_us=ctx.now_us,
        state=S.CONFIGURING,
        attempt=job.attempt + 1,
        placed_us=ctx.now_us,
        tasks=tuple([Task(t.rank, t.host, t.gpus) for t in e.placement.tasks]),
        go=len(hosts) == 1,
        master_port=0,
        allowed_us=allowed_us(ctx.state, job, ctx.now_us, ctx.now_us),
        mailed_share=0,
        freezes=0,
        stood_us=0,
        suspended_us=None,
        yields_to=(),
        failed_rank=None,
        fence_grace_us=ctx.rules.grace_us if job.spec.fence_us else 0,
        reason=None,
        ending=None,
        started_us=None,
        ended_us=None,
        exit_code=None,
        exit_signal=None,
        slice_of=e.slice_of,
        unsure=False,
        partition=e.partition,
        preempted_by=0,
    )
    ctx.put(job)
    placed_over(ctx, ctx.state.claims.pop(e.array_job or job.id, {}), e.array_job, job.id)
    ctx.state.pending.pop(job.id, None)
    ctx.state.fresh.pop(job.id, None)
    ctx.state.reasons.pop(job.id, None)
    ctx.state.occupy(job, e.placement)
    for host in hosts:
        ctx.act(Launch(job.id, job.attempt, host, e.placement.on(host), len(hosts) > 1, e.slice_of))


def _prepared(ctx: Context, job: Job, e: ev.TasksPrepared) -> None:
    if job.go:
        return  # said twice: every host has got its start
    tasks = renewed(job.tasks, e.host, None, prepared=True)
    port = e.master_port if e.host == job.tasks[0].host else job.master_port  # no other host may choose
    job = ctx.put(replace(job, tasks=as_launched(tasks, e), master_port=port))
    if all(t.prepared for t in job.tasks):
        job = ctx.put(touch(job, ctx.now_us, "every host is ready", go=True))
        for host in hosts_of(job.tasks):
            ctx.act(Start(job.id, job.attempt, host, job.master_port))


def _started(ctx: Context, job: Job, e: ev.TasksStarted) -> None:
    job = ctx.put(replace(job, unsure=False)) if job.unsure else job
    new = tuple(t.rank for t in job.tasks if t.rank in e.ranks and t.started_us is None)
    started_us = max(e.started_us, job.placed_us)
    tasks = as_launched(renewed(job.tasks, e.host, new, started_us=started_us, prepared=True), e)
    if tasks == job.tasks and job.started_us is not None and job.state is not S.CONFIGURING:
        return  # said twice: by the task's start and in the answer to its launch
    job = replace(job, tasks=tasks, host_faults=0)
    if job.held and job.slice_of:
        why = "not held: its host had started it before"
        job = touch(job, ctx.now_us, why, held=False, admin_held=False)
    if job.started_us is None:
        job = touch(job, ctx.now_us, "started", started_us=started_us)
    if job.state is S.CONFIGURING:
        job = replace(job, state=S.RUNNING)
    ctx.put(job)


def _exited(ctx: Context, job: Job, e: ev.TaskExited) -> None:
    task = next((t for t in job.tasks if (t.rank, t.host) == (e.rank, e.host)), None)
    if task is None or task.ended_us is not None:
        return  # said twice
    if e.why == UNSTARTED and job.slice_of and task.started_us is None and e.started_us is None:
        _given_back(ctx, job, e)
        return
    if job.held and job.slice_of:
        job = replace(job, held=False, admin_held=False)  # it has run
    job = _after_epilog(ctx, job, e)
    started, ended = _when(job, task.started_us or e.started_us, e, ctx.now_us)
    tasks = renewed(
        job.tasks,
        e.host,
        (e.rank,),
        started_us=started,
        ended_us=ended,
        exit_code=e.code,
        exit_signal=e.signal,
        silent=e.silent and not (job.spec.output or job.spec.error),
        note=task.note if e.why in WORDS else e.why,
    )
    used = with_told(job.used, e.host, e.rank, e.used, e.whole)
    job = replace(job, tasks=tasks, started_us=job.started_us or started, used=used)
    if job.state is S.CONFIGURING and all(t.prepared or t.started_us for t in tasks):
        job = replace(job, state=S.RUNNING)
    # a host may say so of any job, but ends by a lease only what has one
    if e.why == FENCED and job.spec.fence_us and job.ending is None:
        job = stop_rest(ctx, _fenced(ctx, job, e.host), "abort")
    # also when another task failed of it meanwhile, perhaps since this one has ended
    if e.why == REQUEUE and job.ending in (None, S.FAILED):
        what = f"requeued by its own task {e.rank} on {e.host}"
        job = touch(job, ctx.now_us, what, ending=S.PENDING, reason=None, failed_rank=None)
        job = stop_rest(ctx, _count_requeue(ctx, job), "abort")
    if job.spec.runs_once and e.rank != 0:
        return finish_if_over(ctx, job)  # it held its part of the host; how the job ends, its script says
    # a task that ends well on the signal of its time limit has still reached the limit
    if (e.code or e.signal or e.why == "timeout") and job.ending is None:
        ending, reason = verdict_of(e, job.allowed_us or job.spec.time_limit_us)
        job = touch(job, ctx.now_us, reason.message, ending=ending, reason=reason, failed_rank=e.rank)
        job = stop_rest(ctx, job, "abort")
    if job.spec.runs_once and job.ending is None:
        job = touch(job, ctx.now_us, "its script has ended", ending=S.COMPLETED)
        job = stop_rest(ctx, job, "abort")
    finish_if_over(ctx, job)


def _given_back(ctx: Context, job: Job, e: ev.TaskExited) -> None:
    """Its host has not begun it, and does not any more: nothing has happened to it, it waits as before."""
    job = replace(job, tasks=renewed(job.tasks, e.host, None, ended_us=ctx.now_us))
    if job.ending in (None, S.PENDING):
        job = touch(job, ctx.now_us, f"given back by {e.host}, before its start", ending=S.PENDING)
        job = replace(job, unstarted=job.unstarted + 1)
    finish_if_over(ctx, job)


def _withheld(ctx: Context, job: Job, e: ev.LaunchWithheld) -> None:
    """It waits as before: nothing has begun there, and elsewhere a gang has only been prepared."""
    why = f"its place on {e.host} is held by what was given up there and still ends"
    job = replace(job, tasks=renewed(job.tasks, e.host, None, ended_us=ctx.now_us, note=why))
    if job.ending is None:
        job = touch(job, ctx.now_us, why, ending=S.PENDING, unstarted=job.unstarted + 1)
    finish_if_over(ctx, stop_rest(ctx, job, "abort"))


def _when(job: Job, started_us: int | None, e: ev.TaskExited, now_us: int) -> tuple[int | None, int]:
    """When it started and ended: as far apart as its host measured, however its clock was set in between, and
    never before its attempt was placed."""
    if started_us is None:
        return None, max(e.ended_us, job.placed_us)
    started_us = max(started_us, job.placed_us)
    if e.ran_us is None:
        return started_us, max(e.ended_us, started_us)
    return started_us, max(started_us, min(started_us + e.ran_us, now_us))


def _fenced(ctx: Context, job: Job, host: str) -> Job:
    """Its host ended it, since it had not heard the daemon: the loss of a host, as the host saw it. It counts
    as one, or a job that keeps its hosts from hearing the daemon could go on from host to host."""
    assert job.spec.fence_us
    lease_s = job.spec.fence_us / 1e6
    reason = Reason(ReasonCode.LEASE, f"fenced: no daemon for {lease_s:g} s on host {host}")
    ending = S.PENDING if job.spec.requeue or not job.go else S.NODE_FAIL
    job = touch(job, ctx.now_us, reason.message, ending=ending, reason=reason)
    return _after_loss(ctx, job) if ending is S.PENDING else job


def _launch_failed(ctx: Context, job: Job, e: ev.LaunchFailed) -> None:
    if e.code == Code.PROLOG:
        _drain(ctx, e.host, e.message)
    host_fault = e.code in HOST_FAULTS or e.code == Code.PROLOG
    if e.code in HOST_FAULTS and (host := ctx.state.hosts.get(e.host)) is not None and not host.drained_by:
        said = f"could not launch job {job.id}: {e.message} (rm)"
        ctx.put_host(replace(host, drained_by=said, unwritable=True))
    failures = job.launch_failures + (0 if host_fault else 1)
    faults = job.host_faults + (1 if host_fault else 0)
    sentence = f"host {e.host} could not launch it: {e.message}"
    reason = Reason(ReasonCode.LAUNCH_FAILED, sentence, (("failures", failures),))
    ending = job.ending
    if ending is None:
        own_fault = e.code in JOB_FAULTS or failures >= MAX_LAUNCH_FAILURES
        ending = S.FAILED if own_fault else S.PENDING
    job = touch(
        job,
        ctx.now_us,
        sentence,
        tasks=renewed(job.tasks, e.host, None, ended_us=ctx.now_us, note=e.message),
        launch_failures=failures,
        host_faults=faults,
        not_before_us=max(job.not_before_us, ctx.now_us + _wait_us(faults))
        if host_fault
        else job.not_before_us,
        avoid=tuple(dict.fromkeys((*job.avoid, e.host))),
        ending=ending,
        reason=moved_on(job).reason or reason,
    )
    finish_if_over(ctx, stop_rest(ctx, job, "abort"))


def _drain(ctx: Context, host: str, why: str) -> None:
    """Until an administrator has looked at it: its next jobs would meet the same."""
    found = ctx.state.hosts.get(host)
    if found is not None and not found.drained_by:
        ctx.put_host(replace(found, drained_by=f"{why} (rm)"))


def _after_epilog(ctx: Context, job: Job, e: ev.TaskExited | ev.TasksLost) -> Job:
    if not e.epilog:
        return job
    _drain(ctx, e.host, e.epilog)
    return touch(job, ctx.now_us, e.epilog)


def _lost(ctx: Context, job: Job, e: ev.TasksLost) -> None:
    if any((t.rank, t.host) == (rank, e.host) and t.ended_us is None for t in job.tasks for rank in e.ranks):
        job = _after_epilog(ctx, job, e)
    why = e.why or f"host {e.host} restarted and no longer knows its tasks"
    lose_tasks(ctx, job, e.host, e.ranks, why)


def _lease_over(ctx: Context, job: Job, e: ev.LeaseOver) -> None:
    ranks = tuple(t.rank for t in job.tasks if t.host == e.host)
    lose_tasks(ctx, job, e.host, ranks, f"host {e.host} was lost, and the lease of the job there has run out")


def lose_tasks(ctx: Context, job: Job, host: str, ranks: tuple[int, ...], why: str) -> None:
    alive = {t.rank for t in job.tasks if t.rank in ranks and t.host == host and t.ended_us is None}
    if not alive:
        return
    tasks = renewed(job.tasks, host, tuple(alive), ended_us=max(ctx.now_us, job.started_us or 0), note=why)
    job = touch(job, ctx.now_us, why, tasks=tasks)
    if job.ending is None:
        # a gang that never got its start has done nothing yet: it may always be tried again
        ending = S.PENDING if job.spec.requeue or not job.go else S.NODE_FAIL
        job = replace(job, ending=ending, reason=Reason(ReasonCode.HOST_LOST, why))
        if ending is S.PENDING:
            job = _after_loss(ctx, job)
    finish_if_over(ctx, stop_rest(ctx, job, "abort"))


def _after_loss(ctx: Context, job: Job) -> Job:
    """When a job that lost a host may be tried again: at once, then later from loss to loss, and at last
    only when it is released."""
    innocent = job.started_us is not None and ctx.now_us - job.started_us >= INNOCENT_US
    losses = 1 if innocent else job.losses + 1
    job = replace(job, losses=losses, not_before_us=ctx.now_us + _wait_us(losses))
    if not ctx.rules.max_losses or losses < ctx.rules.max_losses:
        return job
    return touch(job, ctx.now_us, f"held: its hosts were lost {losses} times in a row", held=True)


def _wait_us(times: int) -> int:
    """How long a job waits that failed so often in a row for reasons that may be its own: at first not."""
    return min(LOSS_BACKOFF_US << (2 * min(times - 2, 10)), LONGEST_BACKOFF_US) if times > 1 else 0


def _cancel_pending(ctx: Context, job: Job, e: ev.CancelRequested) -> None:
    reason = Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}")
    _drop(ctx, job, reason.message, reason)


def _miss(ctx: Context, job: Job, e: ev.DeadlineMissed) -> None:
    reason = missed(job)
    _drop(ctx, job, f"cancelled: {reason.message}", reason)


def _drop(ctx: Context, job: Job, what: str, reason: Reason) -> None:
    ctx.state.pending.pop(job.id, None)
    ctx.state.reasons.pop(job.id, None)
    ctx.put(touch(job, ctx.now_us, what, state=S.CANCELLED, ended_us=ctx.now_us, reason=reason))


def _share(ctx: Context, job: Job, e: ev.SharePassed) -> None:
    if (mail := share_mail(job, e.share)) is not None:
        ctx.act(mail)
    ctx.put(replace(job, mailed_share=e.share))


def _cancel(ctx: Context, job: Job, e: ev.CancelRequested) -> None:
    reason = Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}")
    job = touch(job, ctx.now_us, reason.message, ending=S.CANCELLED, reason=reason)
    finish_if_over(ctx, stop_rest(ctx, job, "cancel"))


def _cancel_requeue(ctx: Context, job: Job, e: ev.CancelRequested) -> None:
    """A job that is on its way out ends as it was going to, but is not requeued any more."""
    if job.ending is S.PENDING:
        reason = Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}")
        ctx.put(touch(job, ctx.now_us, reason.message, ending=S.CANCELLED, reason=reason))


def _requeue(ctx: Context, job: Job, e: ev.RequeueRequested) -> None:
    job = _count_requeue(ctx, touch(job, ctx.now_us, _requeued(e), ending=S.PENDING, held=e.hold or job.held))
    finish_if_over(ctx, stop_rest(ctx, job, "abort"))


def _moved(ctx: Context, job: Job, e: ev.JobMoved) -> None:
    ctx.state.rescheduled_us = ctx.now_us
    story = f"moved: {e.reason.message}"
    job = touch(job, ctx.now_us, story, ending=S.PENDING, reason=e.reason)
    finish_if_over(ctx, stop_rest(ctx, job, "abort"))


def _requeue_finished(ctx: Context, job: Job, e: ev.RequeueRequested) -> None:
    refuse_again(ctx.state, [job])
    earlier = with_earlier(job, f"ended {job.state}")
    job = touch(job, ctx.now_us, _requeued(e), launch_failures=0, host_faults=0, avoid=(), losses=0,
                reason=None, held=e.hold or job.held)  # fmt: skip
    back_to_queue(ctx, _count_requeue(ctx, replace(job, earlier=earlier)))


def _requeued(e: ev.RequeueRequested) -> str:
    return f"requeued and held by {e.by}" if e.hold else f"requeued by {e.by}"


def _count_requeue(ctx: Context, job: Job) -> Job:
    """A job that is requeued again and again, perhaps by itself, stays in the queue at last."""
    job = replace(job, requeues=job.requeues + 1)
    most = ctx.rules.max_requeues
    if not most or job.requeues <= most:
        return job
    return touch(job, ctx.now_us, f"held: it was requeued more than {most} times", held=True)


def _profiled(ctx: Context, job: Job, e: ev.ProfileMeasured) -> None:
    told = {"traffic": e.traffic, "cooperative": e.cooperative}
    job = ctx.put(touch(job, ctx.now_us, "traffic profile measured", **told))
    ctx.state.see_again(job)
    ctx.state.capacity_version += 1  # what its traffic kept waiting may fit beside it now


def _forget_prepared(ctx: Context, job: Job, e: ev.TasksPrepared) -> None:
    """The gang was given up while this host was still preparing. What has not ended is being stopped."""
    if any(t.ended_us is None for t in job.tasks if t.host == e.host):
        return
    ctx.act(Discard(job.id, job.attempt, e.host))


TRANSITIONS: dict[tuple[JobState, type], Callable[[Context, Job, Any], None]] = {
    (S.PENDING, ev.JobPlaced): _place,
    (S.PENDING, ev.CancelRequested): _cancel_pending,
    (S.PENDING, ev.DeadlineMissed): _miss,
    (S.RUNNING, ev.SharePassed): _share,
    (S.RUNNING, ev.GpusIdle): idle,
    (S.PENDING, ev.HoldRequested): hold,
    (S.PENDING, ev.ReleaseRequested): release,
    **{(s, ev.JobUpdated): update for s in (S.PENDING, S.CONFIGURING, S.RUNNING, S.SUSPENDED)},
    (S.CONFIGURING, ev.TasksPrepared): _prepared,
    (S.RUNNING, ev.TasksPrepared): _prepared,  # said twice
    (S.SUSPENDED, ev.TasksPrepared): _prepared,
    (S.COMPLETING, ev.TasksPrepared): _forget_prepared,
    (S.CONFIGURING, ev.TasksStarted): _started,
    (S.RUNNING, ev.TasksStarted): _started,
    (S.SUSPENDED, ev.TasksStarted): _started,
    (S.COMPLETING, ev.TasksStarted): _started,
    (S.CONFIGURING, ev.TaskExited): _exited,
    (S.RUNNING, ev.TaskExited): _exited,
    (S.SUSPENDED, ev.TaskExited): _exited,
    (S.COMPLETING, ev.TaskExited): _exited,
    (S.CONFIGURING, ev.LaunchFailed): _launch_failed,
    (S.RUNNING, ev.LaunchFailed): _launch_failed,  # one host of a gang failed to start
    (S.SUSPENDED, ev.LaunchFailed): _launch_failed,
    (S.COMPLETING, ev.LaunchFailed): _launch_failed,
    **{(s, ev.LaunchWithheld): _withheld for s in (S.CONFIGURING, S.RUNNING, S.SUSPENDED, S.COMPLETING)},
    (S.CONFIGURING, ev.TasksLost): _lost,
    (S.RUNNING, ev.TasksLost): _lost,
    (S.SUSPENDED, ev.TasksLost): _lost,
    (S.COMPLETING, ev.TasksLost): _lost,
    **{(s, ev.LeaseOver): _lease_over for s in (S.CONFIGURING, S.RUNNING, S.SUSPENDED, S.COMPLETING)},
    (S.CONFIGURING, ev.CancelRequested): _cancel,
    (S.RUNNING, ev.CancelRequested): _cancel,
    (S.SUSPENDED, ev.CancelRequested): _cancel,
    (S.COMPLETING, ev.CancelRequested): _cancel_requeue,
    (S.RUNNING, ev.RequeueRequested): _requeue,
    (S.SUSPENDED, ev.RequeueRequested): _requeue,
    (S.CONFIGURING, ev.RequeueRequested): _requeue,
    (S.RUNNING, ev.JobMoved): _moved,
    **{(s, ev.JobPreempted): preempt for s in (S.CONFIGURING, S.RUNNING, S.SUSPENDED)},
    (S.RUNNING, ev.ProfileMeasured): _profiled,
    (S.SUSPENDED, ev.ProfileMeasured): _profiled,
    (S.COMPLETING, ev.ProfileMeasured): _profiled,
    **{(s, ev.RequeueRequested): _requeue_finished for s in S if s.final},
    (S.RUNNING, ev.SuspendRequested): suspend,
    (S.SUSPENDED, ev.ResumeRequested): resume,
}


def handler_of(job: Job, event: type) -> Callable[[Context, Job, Any], None] | None:
    """What the event does to the job in its state; None: it is not possible."""
    if job.waits_in_slice and event in IN_SLICE:
        return IN_SLICE[event]
    return TRANSITIONS.get((job.state, event))
