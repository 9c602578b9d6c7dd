"""The only mutator: events knock, TRANSITIONS answers, anything else raises with the job's story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rm.core import events as ev
from rm.core.actions import Action, Collect, Discard, Launch, Start, Stop
from rm.core.host import Host, HostState, Zone
from rm.core.job import Job, JobState, Task
from rm.core.network import LinkStats
from rm.core.reasons import Reason, ReasonCode
from rm.core.state import ClusterState, touch
from rm.errors import IllegalTransition

S = JobState

# The agent's refusals that no other host would answer differently: the job itself is at fault.
JOB_FAULTS = frozenset({"no-such-user", "root-refused", "bad-request"})
# Refusals that every other job would meet on that host too: it is drained until somebody looks.
HOST_FAULTS = frozenset({"no-space", "spool"})
MAX_LAUNCH_FAILURES = 3


@dataclass(slots=True)
class Changes:
    """What one batch of events changed: the store writes it, the executor carries it out."""

    jobs: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    zones: set[str] = field(default_factory=set)
    removed_hosts: set[str] = field(default_factory=set)
    actions: list[Action] = field(default_factory=list)
    measured: list[tuple[str, str, LinkStats]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rules:
    """Times of the lifecycle, microseconds: the grace between SIGTERM and SIGKILL, and how
    long a host may be silent before its jobs are lost."""

    grace_us: int = 30_000_000
    down_after_us: int = 20_000_000


@dataclass(slots=True)
class Context:
    state: ClusterState
    now_us: int
    rules: Rules
    changes: Changes

    def put(self, job: Job) -> Job:
        self.state.jobs[job.id] = job
        self.changes.jobs.add(job.id)
        return job

    def act(self, action: Action) -> None:
        self.changes.actions.append(action)


def apply(state: ClusterState, event: ev.Event, now_us: int, rules: Rules, changes: Changes) -> None:
    """Apply one event to the state and note the consequences in `changes`.

    Raises:
        IllegalTransition: the event asks something of a job that its state does not allow.
    """
    ctx = Context(state, now_us, rules, changes)
    on_cluster = CLUSTER_EVENTS.get(type(event))
    if on_cluster is not None:
        on_cluster(ctx, event)
        return
    job = state.jobs.get(event.job)  # type: ignore[union-attr]
    attempt = getattr(event, "attempt", None)
    if job is None or (attempt is not None and (attempt != job.attempt or not job.occupies)):
        _stale(ctx, job, event)
        return
    handler = TRANSITIONS.get((job.state, type(event)))
    if handler is None:
        raise IllegalTransition(
            f"Job {job.id} is {job.state} and cannot take {type(event).__name__}.", story(job)
        )
    handler(ctx, job, event)


def story(job: Job) -> str:
    """The job's last steps as one line, for errors and `rmx show`."""
    return "Its story: " + "; ".join(what for _, what in job.history[-6:]) + "."


# -- events that concern no single job, or a new one ---------------------------------------------


def _submitted(ctx: Context, e: ev.JobSubmitted) -> None:
    job = Job(
        id=e.job,
        spec=e.spec,
        submitted_us=ctx.now_us,
        held=e.spec.hold,
        traffic=e.spec.traffic,
        history=((ctx.now_us, f"submitted by {e.spec.user}"),),
    )
    ctx.put(job)
    ctx.state.enqueue(job.id)
    ctx.state.next_job = max(ctx.state.next_job, job.id + 1)


def _host_added(ctx: Context, e: ev.HostAdded) -> None:
    old = ctx.state.hosts.get(e.host.name)
    host = e.host
    if old is not None:  # the inventory declares; what was discovered fills the gaps
        host = replace(
            host,
            cpus=host.cpus or old.cpus,
            mem_bytes=host.mem_bytes or old.mem_bytes,
            gpus=host.gpus or old.gpus,
            nic_bps=host.nic_bps or old.nic_bps,
            interface=host.interface or old.interface,
            state=old.state,
            drained_by=old.drained_by,
            reason=old.reason,
            boot_id=old.boot_id,
            agent_version=old.agent_version,
            since_us=old.since_us,
        )
    else:
        ctx.state.silent_since[host.name] = ctx.now_us
    if host.zone not in ctx.state.zones:
        ctx.state.zones[host.zone] = Zone(host.zone)
        ctx.changes.zones.add(host.zone)
    _put_host(ctx, host)


def _host_removed(ctx: Context, e: ev.HostRemoved) -> None:
    if e.host not in ctx.state.hosts:
        return
    del ctx.state.hosts[e.host]
    ctx.state.free.pop(e.host, None)
    ctx.state.silent_since.pop(e.host, None)
    ctx.changes.hosts.discard(e.host)
    ctx.changes.removed_hosts.add(e.host)


def _host_up(ctx: Context, e: ev.HostUp) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is None:
        return
    ctx.state.silent_since.pop(e.host, None)
    host = replace(
        host,
        state=HostState.UP,
        reason="",
        boot_id=e.boot_id,
        agent_version=e.agent_version,
        cpus=host.cpus or e.cpus,
        mem_bytes=host.mem_bytes or e.mem_bytes,
        gpus=host.gpus or e.gpus,
        interface=host.interface or e.interface,
        nic_bps=host.nic_bps or e.nic_bps,
        since_us=ctx.now_us,
    )
    _put_host(ctx, host)


def _host_silent(ctx: Context, e: ev.HostSilent) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is None:
        return
    ctx.state.silent_since.setdefault(e.host, ctx.now_us)
    if host.reason != e.reason or host.state is HostState.UP:
        state = HostState.UNKNOWN if host.state is HostState.UP else host.state
        _put_host(ctx, replace(host, state=state, reason=e.reason, since_us=ctx.now_us))


def _host_down(ctx: Context, e: ev.HostDown) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is None or host.state is HostState.DOWN:
        return
    _put_host(ctx, replace(host, state=HostState.DOWN, reason=e.reason, since_us=ctx.now_us))
    for job_id in sorted(ctx.state.jobs_on.get(e.host, ())):
        job = ctx.state.jobs[job_id]
        ranks = tuple(t.rank for t in job.tasks if t.host == e.host)
        _lose_tasks(ctx, job, e.host, ranks, f"host {e.host} was lost: {e.reason}")


def _host_drained(ctx: Context, e: ev.HostDrained) -> None:
    if (host := ctx.state.hosts.get(e.host)) is not None:
        said = f"{e.reason} ({e.by})" if e.reason else f"drained by {e.by}"
        _put_host(ctx, replace(host, drained_by=said))


def _host_resumed(ctx: Context, e: ev.HostResumed) -> None:
    if (host := ctx.state.hosts.get(e.host)) is not None:
        _put_host(ctx, replace(host, drained_by=""))


def _put_host(ctx: Context, host: Host) -> None:
    ctx.state.hosts[host.name] = host
    ctx.state.recount(host.name)
    ctx.state.capacity_version += 1
    ctx.state.placed_version += 1  # link capacities are part of what is aligned
    ctx.changes.removed_hosts.discard(host.name)
    ctx.changes.hosts.add(host.name)


def _measured(ctx: Context, e: ev.Measured) -> None:
    ctx.state.network[(e.source, e.destination)] = e.stats
    ctx.changes.measured.append((e.source, e.destination, e.stats))
    ctx.state.capacity_version += 1  # a host may be well enough connected again


def _zone_measured(ctx: Context, e: ev.ZoneMeasured) -> None:
    zone = ctx.state.zones.get(e.zone)
    if zone is not None and zone.delay_us != e.delay_us:
        ctx.state.zones[e.zone] = replace(zone, delay_us=e.delay_us)
        ctx.changes.zones.add(e.zone)
        ctx.state.capacity_version += 1


def _recomputed(ctx: Context, e: ev.AlignmentRecomputed) -> None:
    if e.placed_version == ctx.state.placed_version:  # otherwise it answers an old question
        ctx.state.alignment = e.alignment


def _settled(ctx: Context, e: ev.ActionSettled) -> None:
    ctx.changes.settled.append(e.action)


def _noted(ctx: Context, e: ev.Noted) -> None:
    if (job := ctx.state.jobs.get(e.job)) is not None:
        ctx.put(touch(job, ctx.now_us, e.what))


def _stray(ctx: Context, e: ev.StrayFound) -> None:
    if e.running:
        ctx.act(Stop(e.job, e.attempt, e.host, ctx.rules.grace_us, "abort"))
    else:
        ctx.act(Discard(e.job, e.attempt, e.host))


def _tick(ctx: Context, e: ev.Tick) -> None:
    """Nothing: it only makes the cycle look at the clock."""


def _stale(ctx: Context, job: Job | None, event: ev.Event) -> None:
    """News of an attempt that is over: its host must stop it, or forget it; the rest is noise."""
    attempt = getattr(event, "attempt", None)
    if attempt is None:
        name = type(event).__name__
        raise IllegalTransition(f"There is no job {getattr(event, 'job', '?')} to take {name}.")
    if job is not None and job.attempt == attempt and not isinstance(event, ev.TasksPrepared):
        return  # the current attempt has just ended; its collection is under way
    if isinstance(event, ev.TasksStarted):
        _stray(ctx, ev.StrayFound(event.job, attempt, event.host, running=True))
    elif isinstance(event, ev.TaskExited | ev.TasksPrepared):
        _stray(ctx, ev.StrayFound(event.job, attempt, event.host, running=False))


def _forget_prepared(ctx: Context, job: Job, e: ev.TasksPrepared) -> None:
    """The gang was given up while this host was still preparing."""
    ctx.act(Discard(job.id, job.attempt, e.host))


# -- one job's transitions ------------------------------------------------------------------------


def _place(ctx: Context, job: Job, e: ev.JobPlaced) -> None:
    hosts = e.placement.hosts
    job = touch(
        job,
        ctx.now_us,
        f"placed on {', '.join(hosts)}",
        state=S.CONFIGURING,
        attempt=job.attempt + 1,
        tasks=tuple(Task(t.rank, t.host, t.gpus) for t in e.placement.tasks),
        go=len(hosts) == 1,
        reason=None,
        ending=None,
        started_us=None,
        ended_us=None,
        exit_code=None,
        exit_signal=None,
    )
    ctx.put(job)
    ctx.state.pending.pop(job.id, None)
    ctx.state.reasons.pop(job.id, None)
    ctx.state.occupy(job)
    for host in hosts:
        ctx.act(Launch(job.id, job.attempt, host, e.placement.on(host), hold=len(hosts) > 1))


def _prepared(ctx: Context, job: Job, e: ev.TasksPrepared) -> None:
    tasks = _update(job.tasks, e.host, None, prepared=True)
    job = ctx.put(replace(job, tasks=_with_notes(tasks, e.notes)))
    if all(t.prepared for t in job.tasks):
        job = ctx.put(touch(job, ctx.now_us, "every host is ready", go=True))
        for host in _hosts(job.tasks):
            ctx.act(Start(job.id, job.attempt, host))


def _started(ctx: Context, job: Job, e: ev.TasksStarted) -> None:
    tasks = _update(job.tasks, e.host, e.ranks, started_us=e.started_us, prepared=True)
    job = replace(job, tasks=_with_notes(tasks, e.notes))
    if job.started_us is None:
        job = touch(job, ctx.now_us, "started", started_us=e.started_us)
    if job.state is S.CONFIGURING:
        job = replace(job, state=S.RUNNING)
    ctx.put(job)
    ctx.state.see_again(job)


def _exited(ctx: Context, job: Job, e: ev.TaskExited) -> None:
    task = next((t for t in job.tasks if t.rank == e.rank), None)
    if task is None or task.ended_us is not None:
        return  # said twice
    started = task.started_us or e.started_us
    tasks = _update(
        job.tasks,
        e.host,
        (e.rank,),
        started_us=started,
        ended_us=e.ended_us,
        exit_code=e.code,
        exit_signal=e.signal,
        note=e.why if e.why not in ("cancel", "timeout", "abort") else task.note,
    )
    job = replace(job, tasks=tasks, started_us=job.started_us or started)
    if job.state is S.CONFIGURING and all(t.prepared or t.started_us for t in tasks):
        job = replace(job, state=S.RUNNING)
    # a task that ends well when it is told that its time is over has still reached its limit
    if (e.code or e.signal or e.why == "timeout") and job.ending is None:
        ending, reason = _verdict(e)
        job = touch(job, ctx.now_us, reason.message, ending=ending, reason=reason)
        job = _stop_rest(ctx, job, "abort")
    _finish_if_over(ctx, job)


def _verdict(e: ev.TaskExited) -> tuple[JobState, Reason]:
    """How a job ends whose first failing task ended like this."""
    at = f"task {e.rank} on {e.host}"
    if e.why == "timeout":
        return S.TIMEOUT, Reason(ReasonCode.TIME_LIMIT, f"{at} reached the time limit")
    if e.out_of_memory:
        return S.OUT_OF_MEMORY, Reason(ReasonCode.OUT_OF_MEMORY, f"{at} ran out of memory")
    if e.why == "cancel":
        return S.CANCELLED, Reason(ReasonCode.CANCELLED, f"{at} was cancelled")
    if e.why and e.why != "abort":
        return S.FAILED, Reason(ReasonCode.LAUNCH_FAILED, f"{at} could not run: {e.why}")
    numbers = (("rank", e.rank), ("code", e.code), ("signal", e.signal))
    how = f"was killed by signal {e.signal}" if e.signal else f"exited with code {e.code}"
    return S.FAILED, Reason(ReasonCode.EXIT_CODE, f"{at} {how}", numbers)


def _launch_failed(ctx: Context, job: Job, e: ev.LaunchFailed) -> None:
    host_fault = e.code in HOST_FAULTS
    if host_fault and (host := ctx.state.hosts.get(e.host)) is not None and not host.drained_by:
        _put_host(ctx, replace(host, drained_by=f"could not launch job {job.id}: {e.message}"))
    failures = job.launch_failures + (0 if host_fault else 1)
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
        tasks=_update(job.tasks, e.host, None, ended_us=ctx.now_us, note=e.message),
        launch_failures=failures,
        avoid=tuple(dict.fromkeys((*job.avoid, e.host))),
        ending=ending,
        reason=job.reason or reason,
    )
    _finish_if_over(ctx, _stop_rest(ctx, job, "abort"))


def _lost(ctx: Context, job: Job, e: ev.TasksLost) -> None:
    why = e.why or f"host {e.host} restarted and no longer knows its tasks"
    _lose_tasks(ctx, job, e.host, e.ranks, why)


def _lose_tasks(ctx: Context, job: Job, host: str, ranks: tuple[int, ...], why: str) -> None:
    alive = {t.rank for t in job.tasks if t.rank in ranks and t.ended_us is None}
    if not alive:
        return
    tasks = _update(job.tasks, host, tuple(alive), ended_us=ctx.now_us, note=why)
    job = touch(job, ctx.now_us, why, tasks=tasks)
    if job.ending is None:
        ending = S.PENDING if job.spec.requeue else S.NODE_FAIL
        job = replace(job, ending=ending, reason=Reason(ReasonCode.HOST_LOST, why))
    _finish_if_over(ctx, _stop_rest(ctx, job, "abort"))


def _cancel_pending(ctx: Context, job: Job, e: ev.CancelRequested) -> None:
    reason = Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}")
    ctx.state.pending.pop(job.id, None)
    ctx.state.reasons.pop(job.id, None)
    ctx.put(touch(job, ctx.now_us, reason.message, state=S.CANCELLED, ended_us=ctx.now_us, reason=reason))


def _cancel(ctx: Context, job: Job, e: ev.CancelRequested) -> None:
    reason = Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}")
    job = touch(job, ctx.now_us, reason.message, ending=S.CANCELLED, reason=reason)
    _finish_if_over(ctx, _stop_rest(ctx, job, "cancel"))


def _cancel_requeue(ctx: Context, job: Job, e: ev.CancelRequested) -> None:
    """A job that is on its way out ends as it was going to, but is not requeued any more."""
    if job.ending is S.PENDING:
        reason = Reason(ReasonCode.CANCELLED, f"cancelled by {e.by}")
        ctx.put(touch(job, ctx.now_us, reason.message, ending=S.CANCELLED, reason=reason))


def _requeue(ctx: Context, job: Job, e: ev.RequeueRequested) -> None:
    job = touch(job, ctx.now_us, f"requeued by {e.by}", ending=S.PENDING)
    _finish_if_over(ctx, _stop_rest(ctx, job, "abort"))


def _requeue_finished(ctx: Context, job: Job, e: ev.RequeueRequested) -> None:
    job = touch(job, ctx.now_us, f"requeued by {e.by}", launch_failures=0, avoid=())
    _back_to_queue(ctx, job)


def _hold(ctx: Context, job: Job, e: ev.HoldRequested) -> None:
    ctx.put(touch(job, ctx.now_us, f"held by {e.by}", held=True))
    ctx.state.enqueue(job.id)  # its reason has changed


def _release(ctx: Context, job: Job, e: ev.ReleaseRequested) -> None:
    ctx.put(touch(job, ctx.now_us, f"released by {e.by}", held=False))
    ctx.state.enqueue(job.id)


def _profiled(ctx: Context, job: Job, e: ev.ProfileMeasured) -> None:
    job = touch(job, ctx.now_us, "traffic profile measured", traffic=e.traffic)
    ctx.put(replace(job, cooperative=e.cooperative))
    ctx.state.see_again(job)


# -- what several transitions do ------------------------------------------------------------------


def _hosts(tasks: tuple[Task, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.host for t in tasks))


def _update(
    tasks: tuple[Task, ...], host: str, ranks: tuple[int, ...] | None, **changes: Any
) -> tuple[Task, ...]:
    """New versions of the tasks of `host` (those of `ranks`, or all that have not ended)."""
    return tuple(
        replace(t, **changes)
        if t.host == host and (t.rank in ranks if ranks is not None else t.ended_us is None)
        else t
        for t in tasks
    )


def _with_notes(tasks: tuple[Task, ...], notes: tuple[tuple[int, str], ...]) -> tuple[Task, ...]:
    by_rank = dict(notes)
    return tuple(replace(t, note=by_rank[t.rank]) if t.rank in by_rank else t for t in tasks)


def _stop_rest(ctx: Context, job: Job, why: str) -> Job:
    """Stop every task that has not ended; hosts that only hold a prepared gang just forget it."""
    job = replace(job, state=S.COMPLETING)
    for host in _hosts(tuple(t for t in job.tasks if t.ended_us is None)):
        if job.go:
            ctx.act(Stop(job.id, job.attempt, host, ctx.rules.grace_us, why))
        else:
            ctx.act(Discard(job.id, job.attempt, host))
            job = replace(job, tasks=_update(job.tasks, host, None, ended_us=ctx.now_us))
    return ctx.put(job)


def _finish_if_over(ctx: Context, job: Job) -> None:
    """When the last task has ended: the final state, the resources back, the logs home."""
    ctx.put(job)
    if any(t.ended_us is None for t in job.tasks):
        return
    ran = tuple(t for t in job.tasks if t.started_us is not None)
    for host in _hosts(ran):
        ranks = tuple(t.rank for t in ran if t.host == host)
        ctx.act(Collect(job.id, job.attempt, host, ranks))
    ctx.state.vacate(job)
    if job.ending is S.PENDING:
        _back_to_queue(ctx, job)
        return
    worst = max(
        (t for t in job.tasks if t.exit_code is not None),
        key=lambda t: (bool(t.exit_code or t.exit_signal), t.exit_code or 0),
        default=None,
    )
    final = job.ending or S.COMPLETED
    ctx.put(
        touch(
            job,
            ctx.now_us,
            f"ended {final}",
            state=final,
            ended_us=ctx.now_us,
            exit_code=worst.exit_code if worst else None,
            exit_signal=worst.exit_signal if worst else None,
        )
    )


def _back_to_queue(ctx: Context, job: Job) -> None:
    ctx.put(
        replace(
            job,
            state=S.PENDING,
            tasks=(),
            ending=None,
            started_us=None,
            ended_us=None,
            exit_code=None,
            exit_signal=None,
        )
    )
    ctx.state.enqueue(job.id)


CLUSTER_EVENTS: dict[type, Callable[[Context, Any], None]] = {
    ev.JobSubmitted: _submitted,
    ev.HostAdded: _host_added,
    ev.HostRemoved: _host_removed,
    ev.HostUp: _host_up,
    ev.HostSilent: _host_silent,
    ev.HostDown: _host_down,
    ev.HostDrained: _host_drained,
    ev.HostResumed: _host_resumed,
    ev.Measured: _measured,
    ev.ZoneMeasured: _zone_measured,
    ev.AlignmentRecomputed: _recomputed,
    ev.ActionSettled: _settled,
    ev.Noted: _noted,
    ev.StrayFound: _stray,
    ev.Tick: _tick,
}

TRANSITIONS: dict[tuple[JobState, type], Callable[[Context, Job, Any], None]] = {
    (S.PENDING, ev.JobPlaced): _place,
    (S.PENDING, ev.CancelRequested): _cancel_pending,
    (S.PENDING, ev.HoldRequested): _hold,
    (S.PENDING, ev.ReleaseRequested): _release,
    (S.CONFIGURING, ev.TasksPrepared): _prepared,
    (S.COMPLETING, ev.TasksPrepared): _forget_prepared,
    (S.CONFIGURING, ev.TasksStarted): _started,
    (S.RUNNING, ev.TasksStarted): _started,
    (S.COMPLETING, ev.TasksStarted): _started,
    (S.CONFIGURING, ev.TaskExited): _exited,
    (S.RUNNING, ev.TaskExited): _exited,
    (S.COMPLETING, ev.TaskExited): _exited,
    (S.CONFIGURING, ev.LaunchFailed): _launch_failed,
    (S.RUNNING, ev.LaunchFailed): _launch_failed,  # one host of a gang failed to start
    (S.COMPLETING, ev.LaunchFailed): _launch_failed,
    (S.CONFIGURING, ev.TasksLost): _lost,
    (S.RUNNING, ev.TasksLost): _lost,
    (S.COMPLETING, ev.TasksLost): _lost,
    (S.CONFIGURING, ev.CancelRequested): _cancel,
    (S.RUNNING, ev.CancelRequested): _cancel,
    (S.COMPLETING, ev.CancelRequested): _cancel_requeue,
    (S.RUNNING, ev.RequeueRequested): _requeue,
    (S.CONFIGURING, ev.RequeueRequested): _requeue,
    (S.RUNNING, ev.ProfileMeasured): _profiled,
    (S.COMPLETING, ev.ProfileMeasured): _profiled,
    **{(s, ev.RequeueRequested): _requeue_finished for s in S if s.final},
}
