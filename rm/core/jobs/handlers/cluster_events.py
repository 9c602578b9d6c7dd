"""The events that concern no single job, or a new one: hosts, the network, actions, submissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Discard, Stop
from rm.core.jobs.changes import Context
from rm.core.jobs.dependents import asked_for
from rm.core.jobs.elements import array_of
from rm.core.jobs.handlers import reserving
from rm.core.jobs.handlers.accounting import accounts_set, as_accepted
from rm.core.jobs.handlers.fencing import ended_after_us
from rm.core.jobs.handlers.transitions import lose_tasks
from rm.core.jobs.state import touch
from rm.core.model.host import FINDABLE, Host, HostState, Nic, Zone
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.network.alignment import combined, in_words
from rm.core.model.network.slowed import more_saved, with_more
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import copier, replace
from rm.units import format_time_limit

# A new job is a copy of it: a Job of 60 fields takes several times as long to make.
BLANK = Job(0, JobSpec("", "", ""), 0)
_new = copier(
    Job, "id", "spec", "submitted_us", "held", "traffic", "key", "account", "qos", "dependencies", "array",
    "history",
)  # fmt: skip


def _submitted(ctx: Context, e: ev.JobSubmitted) -> None:
    account, qos, spec, whose = as_accepted(ctx, e.spec)
    said = f"submitted by {e.spec.user}"
    if whose and spec.time_limit_us is not None:
        said += f"; its time limit is {whose}, {format_time_limit(spec.time_limit_us)}"
    job = _new(
        BLANK,
        id=e.job,
        spec=spec,
        submitted_us=ctx.now_us,
        held=e.spec.hold,
        traffic=e.spec.traffic,
        key=e.key,
        account=account,
        qos=qos,
        dependencies=asked_for(e.spec, e.past, ctx.now_us) if e.spec.dependency else (),
        array=array_of(e.spec) if e.spec.array else None,
        history=((ctx.now_us, said),),
    )
    ctx.put(job)
    ctx.state.enqueue(job.id)
    if job.id >= ctx.state.next_job:
        ctx.state.next_job = job.id + 1
    if e.key:
        ctx.state.submissions.setdefault((e.spec.user, e.key), []).append(job.id)


def _recalled(ctx: Context, e: ev.JobsRecalled) -> None:
    for job in e.jobs:
        if job.id not in ctx.state.jobs:
            ctx.state.recall(job)
    ctx.state.jobs = dict(sorted(ctx.state.jobs.items()))  # lists go by id


def _host_added(ctx: Context, e: ev.HostAdded) -> None:
    old = ctx.state.hosts.get(e.host.name)
    host = replace(e.host, found=tuple(name for name in FINDABLE if not getattr(e.host, name)))
    if old is not None:  # the inventory declares; what was known fills the gaps until the next hello
        host = replace(
            host,
            **{name: getattr(old, name) for name in host.found},
            variables=host.variables or old.variables,
            nics=old.nics,
            state=old.state,
            drained_by=old.drained_by,
            drained_us=old.drained_us,
            unwritable=old.unwritable,
            reason=old.reason,
            boot_id=old.boot_id,
            agent_version=old.agent_version,
            unenforced=old.unenforced,
            unshaped=old.unshaped,
            containers=old.containers,
            machine=old.machine,
            kernel=old.kernel,
            booted_us=old.booted_us,
            since_us=old.since_us,
        )
    else:
        ctx.state.silent_since[host.name] = ctx.now_us
    if ctx.state.fabric is not None:
        ctx.state.fabric = ctx.state.fabric.with_host(host)
    if host.zone not in ctx.state.zones:
        ctx.state.zones[host.zone] = Zone(host.zone)
        ctx.changes.zones.add(host.zone)
    ctx.put_host(host)


def _host_removed(ctx: Context, e: ev.HostRemoved) -> None:
    if e.host not in ctx.state.hosts:
        return
    del ctx.state.hosts[e.host]
    for pair in [p for p in ctx.state.network if e.host in p]:
        del ctx.state.network[pair]
    ctx.state.free.pop(e.host, None)
    ctx.state.silent_since.pop(e.host, None)
    ctx.state.strays.pop(e.host, None)
    ctx.changes.hosts.discard(e.host)
    ctx.changes.removed_hosts.add(e.host)


def _host_up(ctx: Context, e: ev.HostUp) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is None:
        return
    ctx.state.silent_since.pop(e.host, None)
    ctx.state.next_job = max(ctx.state.next_job, e.newest_job + 1)
    ctx.state.strays.pop(e.host, None)  # those that still run there are among what it says now
    # a driver that does not answer today finds nothing: what was found before stays
    news = {n: getattr(e, n) for n in FINDABLE if (n in host.found or not getattr(host, n)) and getattr(e, n)}
    host = _with_nics(replace(host, **news), e.nics)
    host = replace(
        host,
        state=HostState.UP,
        reason="",
        boot_id=e.boot_id,
        agent_version=e.agent_version,
        unenforced=e.unenforced,
        unshaped=e.unshaped,
        containers=e.containers,
        machine=e.machine,
        kernel=e.kernel,
        booted_us=e.booted_us,
        since_us=ctx.now_us,
    )
    if e.writable:
        host = _written(host)
    elif not host.drained_by:
        said = "its spool cannot be written: free space on its disk (rm)"
        host = replace(host, drained_by=said, unwritable=True)
    ctx.put_host(host)
    _heard_in_time(ctx, e.host)


def _written(host: Host) -> Host:
    return replace(host, drained_by="", unwritable=False) if host.unwritable else host


def _spool_writable(ctx: Context, e: ev.SpoolWritable) -> None:
    if (host := ctx.state.hosts.get(e.host)) is not None and host.unwritable:
        ctx.put_host(_written(host))


def _with_nics(host: Host, nics: tuple[Nic, ...]) -> Host:
    """The interface that the inventory declares, by any of its names, comes first, and its speed is the
    link's, unless declared."""
    if not nics:
        return host
    first = [nic for nic in nics if nic.is_called(host.interface)]
    host = replace(host, nics=(*first, *(nic for nic in nics if nic not in first)))
    declared = "nic_bps" not in host.found
    return host if declared or not first else replace(host, nic_bps=first[0].speed_bps or host.nic_bps)


def _host_silent(ctx: Context, e: ev.HostSilent) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is None:
        return
    ctx.state.silent_since.setdefault(e.host, ctx.now_us)
    if host.reason != e.reason or host.state is HostState.UP:
        state = HostState.UNKNOWN if host.state is HostState.UP else host.state
        ctx.put_host(replace(host, state=state, reason=e.reason, since_us=ctx.now_us))


def _host_down(ctx: Context, e: ev.HostDown) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is None or host.state is HostState.DOWN:
        return
    ctx.put_host(replace(host, state=HostState.DOWN, reason=e.reason, since_us=ctx.now_us))
    for job_id in sorted(ctx.state.jobs_on.get(e.host, ())):
        job = ctx.state.jobs[job_id]
        ranks = tuple(t.rank for t in job.tasks if t.host == e.host and t.ended_us is None)
        if ranks and ended_after_us(job):
            _wait_for_lease(ctx, job, e)
            continue
        lose_tasks(ctx, job, e.host, ranks, f"host {e.host} was lost: {e.reason}")


def _wait_for_lease(ctx: Context, job: Job, e: ev.HostDown) -> None:
    """The host may still run it, until its lease has run out: the job is as it is until then."""
    why = f"host {e.host} is lost, and may run the job until its lease has run out: {e.reason}"
    reason = Reason(ReasonCode.LEASE, why) if job.ending is None else job.reason
    ctx.put(touch(job, ctx.now_us, why, reason=reason))


def _heard_in_time(ctx: Context, host: str) -> None:
    """Jobs that were about to be given up go on."""
    for job_id in sorted(ctx.state.jobs_on.get(host, ())):
        job = ctx.state.jobs[job_id]
        if job.ending is None and job.reason is not None and job.reason.code is ReasonCode.LEASE:
            ctx.put(touch(job, ctx.now_us, f"host {host} answers again", reason=None))


def _host_drained(ctx: Context, e: ev.HostDrained) -> None:
    if (host := ctx.state.hosts.get(e.host)) is not None:
        said = f"{e.reason} ({e.by})" if e.reason else f"drained by {e.by}"
        ctx.put_host(replace(host, drained_by=said, unwritable=False))


def _host_misbehaved(ctx: Context, e: ev.HostMisbehaved) -> None:
    host = ctx.state.hosts.get(e.host)
    if host is not None and not host.drained_by:
        ctx.put_host(replace(host, drained_by=f"{e.what} (rm)"))


def _host_resumed(ctx: Context, e: ev.HostResumed) -> None:
    if (host := ctx.state.hosts.get(e.host)) is not None:
        ctx.put_host(replace(host, drained_by="", unwritable=False))


def _measured(ctx: Context, e: ev.Measured) -> None:
    if e.source not in ctx.state.hosts or e.destination not in ctx.state.hosts:
        return  # removed while it was measured
    ctx.state.network[(e.source, e.destination)] = e.stats
    ctx.changes.measured.append((e.source, e.destination, e.stats))
    ctx.state.capacity_version += 1  # a host may be well enough connected again


def _progressed(ctx: Context, e: ev.JobsProgressed) -> None:
    for told in e.progress:
        job = ctx.state.jobs.get(told.job)
        if job is not None and job.occupies and job.attempt == told.attempt:
            ctx.state.progress[told.job] = told
            ctx.state.touches.add(told.job)


def _slowed(ctx: Context, e: ev.JobsSlowed) -> None:
    for told in e.slowed:
        job = ctx.state.jobs.get(told.job)
        if job is not None and job.occupies and job.attempt == told.attempt and job.started_us is not None:
            most_us = max(0, ctx.now_us - job.started_us - job.stood_us)
            saved_us = more_saved(job.saved_us, told.saved_us, most_us)
            ctx.put(replace(job, slowed=with_more(job.slowed, told.by, most_us), saved_us=saved_us))


def _zone_measured(ctx: Context, e: ev.ZoneMeasured) -> None:
    zone = ctx.state.zones.get(e.zone)
    if zone is not None and zone.delay_us != e.delay_us:
        ctx.state.zones[e.zone] = replace(zone, delay_us=e.delay_us)
        ctx.changes.zones.add(e.zone)
        ctx.state.capacity_version += 1


def _recomputed(ctx: Context, e: ev.AlignmentRecomputed) -> None:
    if e.placed_version == ctx.state.placed_version:  # otherwise it answers an old question
        before = ctx.state.alignment
        ctx.state.alignment = e.alignment if e.gone is None else combined(before, e.alignment, e.gone)


def _jobs_released(ctx: Context, e: ev.JobsReleased) -> None:
    ctx.state.released[e.released.jobs] = e.released
    _aligned_anew(ctx, e.released.jobs, in_words(e.released))


def _jobs_managed(ctx: Context, e: ev.JobsManaged) -> None:
    if ctx.state.released.pop(e.jobs, None) is not None:
        _aligned_anew(ctx, e.jobs, f"its links are managed again: {e.why}")


def _aligned_anew(ctx: Context, jobs: tuple[int, ...], story: str) -> None:
    ctx.state.placed_version += 1
    for job in jobs:
        if job in ctx.state.placed:
            ctx.put(touch(ctx.state.jobs[job], ctx.now_us, story))


def _settled(ctx: Context, e: ev.ActionSettled) -> None:
    ctx.changes.settled.append(e.action)
    ctx.changes.logs += e.logs


def _noted(ctx: Context, e: ev.Noted) -> None:
    if (job := ctx.state.jobs.get(e.job)) is not None:
        ctx.put(touch(job, ctx.now_us, e.what))


def stray(ctx: Context, e: ev.StrayFound) -> None:
    if e.running:
        if e.held is not None and e.host in ctx.state.hosts:
            ctx.state.strays.setdefault(e.host, {})[e.job, e.attempt] = e.held
            ctx.state.recount(e.host)
        ctx.act(Stop(e.job, e.attempt, e.host, ctx.rules.grace_us, "abort"))
    else:
        ctx.act(Discard(e.job, e.attempt, e.host))


def _stray_ended(ctx: Context, e: ev.StrayEnded) -> None:
    strays = ctx.state.strays.get(e.host, {})
    held = strays.pop((e.job, e.attempt), None)
    if held is None:
        return
    left = tuple(rank for rank in held.ranks if rank != e.rank)
    if left:  # only the notification of the last one says that no process is left
        strays[e.job, e.attempt] = replace(held, ranks=left)
        return
    ctx.state.recount(e.host)
    ctx.state.freed[e.host] = None


def _clock_stepped(ctx: Context, e: ev.ClockStepped) -> None:
    """Silences, back-offs and running times stay as long as they are. When a user asked for a job to begin,
    and what has ended, are instants of the clock that people read: they stay."""
    state, before_us = ctx.state, ctx.now_us - e.by_us
    state.silent_since = {host: since_us + e.by_us for host, since_us in state.silent_since.items()}
    if state.rescheduled_us is not None:
        state.rescheduled_us += e.by_us
    for jobs, one in state.released.items():
        if one.until_us is not None:
            state.released[jobs] = replace(one, until_us=one.until_us + e.by_us)
    for number, planned in state.planned.items():
        if planned.at_us is not None:
            state.planned[number] = replace(planned, at_us=planned.at_us + e.by_us)
    for job_id in [*state.pending, *state.placed]:
        job = state.jobs[job_id]
        moved = moved_by(job, e.by_us, before_us)
        if moved is not job:
            ctx.put(moved)
            if job_id in state.pending:
                state.enqueue(job_id)
    state.waits.clock_stepped(e.by_us)
    state.ledger.clock_stepped(e.by_us)
    state.capacity_version += 1  # reservations reckon with the clock


def moved_by(job: Job, by_us: int, before_us: int) -> Job:
    """The job whose durations that are under way at `before_us` go on by a clock that was set."""
    if job.not_before_us > before_us:
        job = replace(job, not_before_us=job.not_before_us + by_us)
    if job.state is JobState.PENDING and job.delayed_until_us > before_us:
        moved = (
            replace(one, from_us=one.from_us + by_us) if one.from_us > before_us else one
            for one in job.dependencies
        )
        job = replace(job, dependencies=tuple(moved))
    if job.occupies:
        job = replace(job, placed_us=job.placed_us + by_us)
    if job.occupies and job.started_us is not None:
        tasks = tuple(
            replace(
                t,
                started_us=None if t.started_us is None else t.started_us + by_us,
                ended_us=None if t.ended_us is None else t.ended_us + by_us,
            )
            for t in job.tasks
        )
        job = replace(job, started_us=job.started_us + by_us, tasks=tasks)
        if job.suspended_us is not None:
            job = replace(job, suspended_us=job.suspended_us + by_us)
    return job


def _tick(ctx: Context, e: ev.Tick) -> None:
    """Nothing: it only makes the cycle look at the clock."""


CLUSTER_EVENTS: dict[type, Callable[[Context, Any], None]] = {
    ev.JobSubmitted: _submitted,
    ev.JobsRecalled: _recalled,
    ev.HostAdded: _host_added,
    ev.HostRemoved: _host_removed,
    ev.HostUp: _host_up,
    ev.HostSilent: _host_silent,
    ev.HostDown: _host_down,
    ev.HostDrained: _host_drained,
    ev.HostMisbehaved: _host_misbehaved,
    ev.SpoolWritable: _spool_writable,
    ev.HostResumed: _host_resumed,
    ev.ReservationSet: reserving.reservation_set,
    ev.ReservationDeleted: reserving.reservation_deleted,
    ev.ReservationRenewed: reserving.reservation_renewed,
    ev.ReservationTurned: reserving.reservation_turned,
    ev.ReservationPlayed: reserving.reservation_played,
    ev.AccountsSet: accounts_set,
    ev.JobsProgressed: _progressed,
    ev.JobsSlowed: _slowed,
    ev.Measured: _measured,
    ev.ZoneMeasured: _zone_measured,
    ev.AlignmentRecomputed: _recomputed,
    ev.JobsReleased: _jobs_released,
    ev.JobsManaged: _jobs_managed,
    ev.ActionSettled: _settled,
    ev.Noted: _noted,
    ev.StrayFound: stray,
    ev.StrayEnded: _stray_ended,
    ev.ClockStepped: _clock_stepped,
    ev.Tick: _tick,
}
