"""What becomes of reservations of hosts: made, changed, deleted, and their windows by the clock."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.changes import Context
from rm.core.jobs.handlers.allowed import let_run
from rm.core.jobs.state import touch
from rm.core.model.host_reservation import HostReservation, moment
from rm.core.model.replacing import replace


def reservation_set(ctx: Context, e: ev.ReservationSet) -> None:
    """A window that is open stays so if it has not been moved to come, on the hosts that it has now. Its jobs
    that run, also on hosts that it has no more, end with it."""
    new, old = e.reservation, ctx.state.reservations.get(e.reservation.name)
    if old is not None and old.is_open:
        _close(ctx, old)
    _put(ctx, replace(new, is_open=False))
    ends_us = new.open_until_us(ctx.now_us)
    if ends_us is None:
        return
    _open(ctx, new)
    if old is None or ends_us == old.open_until_us(ctx.now_us):
        return
    for number in sorted({*ctx.state.placed}):
        job = ctx.state.jobs[number]
        if job.spec.reservation == new.name:
            said = f"its reservation ends at {moment(ends_us)} now"
            ctx.state.see_again(let_run(ctx, touch(job, ctx.now_us, said)))


def reservation_deleted(ctx: Context, e: ev.ReservationDeleted) -> None:
    old = ctx.state.reservations.get(e.name)
    if old is None:
        return
    if old.is_open:
        _close(ctx, old)
    _forget(ctx, e.name)


def reservation_renewed(ctx: Context, e: ev.ReservationRenewed) -> None:
    old = ctx.state.reservations.get(e.name)
    if old is None:
        return
    last_us = max((ends for _, ends in old.windows), default=ctx.now_us)
    new = tuple(window for window in e.windows if window[0] >= last_us)
    if new:
        _put(ctx, replace(old, windows=(*old.windows, *new)))


def reservation_turned(ctx: Context, e: ev.ReservationTurned) -> None:
    one = ctx.state.reservations.get(e.name)
    if one is None or one.edge_us() != e.edge_us:
        return
    ends_us = one.windows[0][1]
    if ctx.now_us < ends_us:
        _open(ctx, one)
        return
    if one.is_open:
        _close(ctx, one)
    if len(one.windows) > 1 or one.cron:
        _put(ctx, replace(one, windows=one.windows[1:], is_open=False))
    else:
        _forget(ctx, one.name)


def reservation_played(ctx: Context, e: ev.ReservationPlayed) -> None:
    one = ctx.state.reservations.get(e.name)
    if one is not None:
        _put(ctx, replace(one, played_us=e.window_us, result=e.result))


def _open(ctx: Context, one: HostReservation) -> None:
    _put(ctx, replace(one, is_open=True))
    if one.drains:
        for name in one.hosts:
            host = ctx.state.hosts.get(name)
            if host is not None and not host.drained_by:
                ctx.put_host(replace(host, drained_by=one.drained_by))


def _close(ctx: Context, one: HostReservation) -> None:
    """Its hosts take jobs again, but those that somebody else has drained."""
    for name in one.hosts:
        host = ctx.state.hosts.get(name)
        if one.drains and host is not None and host.drained_by == one.drained_by:
            ctx.put_host(replace(host, drained_by=""))


def _put(ctx: Context, one: HostReservation) -> None:
    ctx.state.reservations[one.name] = one
    _changed(ctx, one.name, one)


def _forget(ctx: Context, name: str) -> None:
    del ctx.state.reservations[name]
    _changed(ctx, name, None)


def _changed(ctx: Context, name: str, one: HostReservation | None) -> None:
    ctx.changes.reservations[name] = one
    ctx.state.capacity_version += 1  # a job may fit now that did not
