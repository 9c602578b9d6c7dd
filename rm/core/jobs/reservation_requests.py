"""What is asked of reservations of hosts, checked against the state of the moment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rm.core.jobs.state import ClusterState
from rm.core.model.host_reservation import HostReservation, Window, latest_end_us, moment
from rm.core.model.job import Job
from rm.core.model.replacing import replace
from rm.errors import Conflict, NotFound, UsageError
from rm.features import alternatives, matches, uncounted

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
LONGEST_US = 10 * 366 * 86_400 * 1_000_000
NAMED_MAX = 8  # jobs or hosts that a sentence names


@dataclass(frozen=True, slots=True)
class Choice:
    """Which hosts: those of the names, or `count` of those that have the features, are in the zone and in the
    partition; with neither names nor a count all of these."""

    hosts: tuple[str, ...] = ()
    count: int = 0
    features: str = ""
    zone: str = ""
    partition: str = ""


def known(state: ClusterState, name: str) -> HostReservation:
    """Raises NotFound."""
    found = state.reservations.get(name)
    if found is None:
        raise NotFound(f"There is no reservation '{name:.80}'.", "`rmx reservation show` lists them.")
    return found


def made(state: ClusterState, wanted: HostReservation, choice: Choice, now_us: int) -> HostReservation:
    """The reservation with its hosts.

    Raises:
        UsageError: it says nothing, or nothing that can be.
        NotFound: a host is not known.
        Conflict: its name or its hosts are taken, or jobs run there that may not be over in time.
    """
    if not _NAME.match(wanted.name):
        raise UsageError(
            f"'{wanted.name:.80}' is no name of a reservation.",
            "Write up to 64 letters, digits and the characters _ . - beginning with a letter or a digit.",
        )
    if wanted.name in state.reservations:
        raise Conflict(
            f"There is a reservation {wanted.name} already.",
            "Change it: rmx reservation set, or choose another.",
        )
    return checked(state, replace(wanted, hosts=_chosen(state, wanted, choice)), now_us)


def changed(
    state: ClusterState, wanted: HostReservation, choice: Choice | None, now_us: int
) -> HostReservation:
    """The new version of one that is there; `choice`: other hosts."""
    if choice is not None:
        wanted = replace(wanted, hosts=_chosen(state, wanted, choice))
    return checked(state, wanted, now_us)


def checked(state: ClusterState, wanted: HostReservation, now_us: int) -> HostReservation:
    """The reservation, if it can be; see `made`."""
    if not wanted.users and not wanted.accounts and not wanted.maint:
        raise UsageError("The reservation is for nobody.", "Name its users or accounts, or say --maint.")
    if unknown := [one for one in wanted.accounts if one not in state.accounts.by_name]:
        raise UsageError(
            f"The reservation is for '{unknown[0]:.80}', which is no account.",
            "`rmx account show` lists them.",
        )
    if wanted.playbook and not wanted.maint:
        raise UsageError("Only maintenance has a playbook.", "Say --maint as well.")
    windows = tuple(window for window in wanted.windows if window[1] > now_us)
    for begins_us, ends_us in wanted.windows:
        if not 0 < ends_us - begins_us <= LONGEST_US:
            raise UsageError(
                f"The reservation would end at {moment(ends_us)}, and begin at {moment(begins_us)}.",
                "It ends after it begins, and lasts at most ten years.",
            )
    if not windows and not wanted.cron:
        raise UsageError("The reservation would be over already.", "Say a later end.")
    wanted = replace(wanted, windows=windows)
    if not wanted.maint:
        _refuse_overlap(state, wanted)
    if not wanted.ignore_jobs:
        _refuse_busy(state, wanted, now_us)
    return wanted


def may_go(state: ClusterState, name: str) -> HostReservation:
    """Raises:
    NotFound: there is no such reservation.
    Conflict: jobs of it run.
    """
    found = known(state, name)
    running = [job for job in _placed(state, found.hosts) if job.spec.reservation == name]
    if running:
        raise Conflict(
            f"Jobs of the reservation {name} run: {_jobs(running)}.", "Cancel them, or wait for their end."
        )
    return found


def _chosen(state: ClusterState, wanted: HostReservation, choice: Choice) -> tuple[str, ...]:
    for name in choice.hosts:
        if name not in state.hosts:
            raise NotFound(f"There is no host '{name:.80}'.", "`rmx hosts` lists them.")
    uncounted(choice.features)
    features = alternatives(choice.features)
    fitting = [
        host.name
        for host in state.hosts.values()
        if (not choice.hosts or host.name in choice.hosts)
        and (not choice.zone or host.zone == choice.zone)
        and (not choice.partition or choice.partition in host.partitions)
        and (not features or any(matches(one, host.all_features) for one in features))
    ]
    if not choice.count:
        if not fitting:
            raise UsageError("No host is in that reservation.", "`rmx hosts` lists them.")
        return tuple(fitting)

    def against(name: str) -> tuple[bool, int]:
        """What would keep others from their plans comes last."""
        overlaps = any(
            name in other.hosts and _meet(other.windows, wanted.windows)
            for other in state.reservations.values()
            if other.name != wanted.name
        )
        return overlaps, len(state.jobs_on.get(name, ()))

    if len(fitting) < choice.count:
        raise UsageError(
            f"The reservation asks for {choice.count} hosts, and {len(fitting)} are such.",
            "`rmx hosts` lists them.",
        )
    taken = set(sorted(fitting, key=against)[: choice.count])
    return tuple(name for name in fitting if name in taken)


def _refuse_overlap(state: ClusterState, wanted: HostReservation) -> None:
    for other in state.reservations.values():
        shared = sorted(set(other.hosts) & set(wanted.hosts))
        if other.name != wanted.name and shared and _meet(other.windows, wanted.windows):
            raise Conflict(
                f"Reservation {other.name} has {_named(shared)} in that time.",
                "Choose other hosts or another time; only maintenance may overlap.",
            )


def _refuse_busy(state: ClusterState, wanted: HostReservation, now_us: int) -> None:
    first = min((begins_us for begins_us, _ in wanted.windows), default=None)
    if first is None:
        return
    late = []
    for job in _placed(state, wanted.hosts):
        began_us = (job.started_us if job.started_us is not None else now_us) + job.stood_us
        end_us = latest_end_us(job.spec, began_us)
        if job.allowed_us is not None:  # its own reservation ends before
            end_us = began_us + job.allowed_us
        if job.spec.reservation != wanted.name and (end_us is None or end_us > first):
            late.append(job)
    if late:
        raise Conflict(
            f"Jobs run there that may not be over by {moment(first)}: {_jobs(late)}.",
            "Let it begin later, end them, or say --ignore-jobs: then they run on.",
        )


def _placed(state: ClusterState, hosts: Iterable[str]) -> list[Job]:
    numbers = sorted({number for host in hosts for number in state.jobs_on.get(host, ())})
    return [state.jobs[number] for number in numbers]


def _meet(some: Sequence[Window], others: Sequence[Window]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


def _jobs(jobs: Sequence[Job]) -> str:
    return _named([f"{job.ref} ({job.spec.user})" for job in jobs])


def _named(words: Sequence[str]) -> str:
    return ", ".join(words[:NAMED_MAX]) + (", …" if len(words) > NAMED_MAX else "")
