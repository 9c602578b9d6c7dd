"""Reservations of hosts: times in which they run the jobs of some users alone, or, for maintenance, nothing.

A job without the reservation starts on a reserved host only if its time limit ends it before the next window
begins, so that without a time limit it never does. A job that names the reservation runs on its hosts, begins
while a window is open, and ends with it at the latest: what it has no time for does not begin.

Source: scontrol(1) of Slurm 22.05, RESERVATIONS. Settled here: the hosts are chosen when the reservation is
made; recurring windows come from a cron expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rm.core.model.job import JobSpec
from rm.core.model.reasons import Reason, ReasonCode

Window = tuple[int, int]  # from, to: microseconds since the epoch; the end is not part of it


@dataclass(frozen=True, slots=True)
class HostReservation:
    """`windows` are the open one and those to come that are known, in order; a reservation without `cron` has
    one. Jobs of these `users` run there that are for these `accounts`, or for those below them; where one of
    the two is (), the other alone counts, and with `maint` both may be: nobody. `is_open`: its first window
    has begun, and what that does is done. `playbook`: the path of what runs on the hosts when a window opens.
    `ignore_jobs`: it was made although jobs that run there may not be over in time."""

    name: str
    hosts: tuple[str, ...]
    windows: tuple[Window, ...]
    users: tuple[str, ...] = ()
    cron: str = ""  # begins of windows that come again
    lasts_us: int = 0  # each of them
    maint: bool = False
    ignore_jobs: bool = False
    playbook: str = ""
    comment: str = ""
    by: str = ""
    since_us: int = 0
    is_open: bool = False
    played_us: int = 0  # the begin of the window for which the playbook was last begun; 0: never
    result: str = ""  # of that
    accounts: tuple[str, ...] = ()

    @property
    def drains(self) -> bool:
        """Are its hosts drained while a window is open? Nobody's jobs run there then."""
        return self.maint and not self.users and not self.accounts

    @property
    def drained_by(self) -> str:
        return f"maintenance: reservation {self.name} (rm)"

    def edge_us(self) -> int | None:
        """When its first window opens, or closes if it is open; None: no window is known."""
        if not self.windows:
            return None
        begins_us, ends_us = self.windows[0]
        return ends_us if self.is_open else begins_us

    def open_until_us(self, now_us: int) -> int | None:
        """The end of the window that is open now; None: none is."""
        return next((end for begin, end in self.windows if begin <= now_us < end), None)

    def first_after_us(self, now_us: int) -> Window | None:
        """The window that is open now, or else the next one."""
        return next((window for window in self.windows if now_us < window[1]), None)

    def admits(self, user: str, path: Iterable[str] = ()) -> bool:
        """A job of this user, whose account is the last of the `path` of accounts. Of users and accounts it
        must match both, as in Slurm."""
        if not self.users and not self.accounts:
            return False
        return (not self.users or user in self.users) and (
            not self.accounts or not {*self.accounts}.isdisjoint(path)
        )

    def against(self, window: Window) -> str:
        """Why a job that has no part in it does not start on its hosts."""
        what = " for maintenance" if self.maint else ""
        return (
            f"is reserved{what} from {moment(window[0])} to {moment(window[1])} (reservation {self.name}), "
            "and the job's time limit does not end it by then"
        )


def latest_end_us(spec: JobSpec, now_us: int) -> int | None:
    """When its time limit, or its deadline, has ended a job that starts now; None: neither does."""
    ends = [] if spec.time_limit_us is None else [now_us + spec.time_limit_us]
    if spec.deadline_us is not None:
        ends.append(spec.deadline_us)
    return min(ends, default=None)


def standing_against(
    spec: JobSpec, now_us: int, reservations: Iterable[HostReservation]
) -> tuple[HostReservation, ...]:
    """Those that the job has no part in, and that begin before it would be over if it started now: with its
    own reservation's window at the latest."""
    end_us, mine, known = latest_end_us(spec, now_us), spec.reservation, tuple(reservations)
    if end_us is None and mine:
        end_us = next((one.open_until_us(now_us) for one in known if one.name == mine), None)
    found = []
    for one in known:
        window = one.first_after_us(now_us) if one.name != mine else None
        if window is not None and (end_us is None or window[0] < end_us):
            found.append(one)
    return tuple(found)


def closed_hosts(
    mine: HostReservation | None, against: Iterable[HostReservation], now_us: int, hosts: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """(host, why) where a job may not start now, by host: those of reservations that stand `against` it, and
    all but those of its own."""
    closed: dict[str, str] = {}
    if mine is not None:
        own, why = set(mine.hosts), f"is not of the job's reservation {mine.name}"
        closed.update((host, why) for host in hosts if host not in own)
    for one in against:
        if (window := one.first_after_us(now_us)) is not None:
            closed.update(dict.fromkeys(one.hosts, one.against(window)))
    return tuple(sorted(closed.items()))


def changes_us(spec: JobSpec, now_us: int, reservations: Iterable[HostReservation]) -> list[int]:
    """After now, in order: when other hosts become reserved or free for such a job."""
    found: set[int] = set()
    for one in reservations:
        for begins_us, ends_us in one.windows:
            found |= {begins_us, ends_us}
            if spec.time_limit_us is not None and one.name != spec.reservation:
                found.add(begins_us - spec.time_limit_us + 1)  # from then on it would not be over in time
    return sorted(at_us for at_us in found if at_us > now_us)


def closed_to(
    spec: JobSpec, now_us: int, reservations: Iterable[HostReservation], hosts: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """(host, why) where the job may not start now."""
    known = tuple(reservations)
    mine = next((one for one in known if one.name == spec.reservation), None)
    return closed_hosts(mine, standing_against(spec, now_us, known), now_us, hosts)


def waits_for(
    spec: JobSpec, now_us: int, reservations: Iterable[HostReservation], path: Iterable[str] = ()
) -> Reason | None:
    """Why a job that names a reservation, for the account at the end of the `path`, may not start now by
    that; None: it may."""
    name = spec.reservation
    if not name:
        return None
    found = next((one for one in reservations if one.name == name), None)
    if found is None:
        return Reason(
            ReasonCode.RESERVATION,
            f"its reservation {name} is over or was deleted; `rmx set JOB reservation=` takes the job out of "
            "it, rmx cancel ends it",
        )
    if not found.admits(spec.user, path):
        whom = f"{spec.user} or the job's account" if found.accounts else spec.user
        said = f"its reservation {name} is not for {whom}"
        return Reason(ReasonCode.RESERVATION, said)
    window = found.first_after_us(now_us)
    if window is None:
        return Reason(ReasonCode.RESERVATION, f"no further window of its reservation {name} is known yet")
    begins_us, ends_us = window
    numbers = (("reservation_start_us", begins_us), ("reservation_end_us", ends_us))
    if now_us < begins_us:
        return Reason(
            ReasonCode.RESERVATION, f"its reservation {name} begins at {moment(begins_us)}", numbers
        )
    end_us = latest_end_us(spec, now_us)
    if end_us is not None and end_us > ends_us:
        return Reason(
            ReasonCode.RESERVATION,
            f"its reservation {name} ends at {moment(ends_us)}, before its time limit would",
            numbers,
        )
    return None


def moment(at_us: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return "a time in the far future"
