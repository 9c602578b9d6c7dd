"""The use cases of reservations of hosts, and the windows of those that come again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs import reservation_requests as requests
from rm.core.jobs.reservation_requests import Choice
from rm.core.jobs.state import ClusterState
from rm.core.model.host_reservation import HostReservation, Window
from rm.core.model.replacing import replace
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.leading.leader import Leader
from rm.daemon.services.asking import Asking
from rm.errors import ConfigError, Forbidden, UsageError

WINDOWS = 16  # of one that comes again, that are known ahead
CHOOSES = frozenset(field.name for field in fields(Choice))
Again = Callable[[str, int, int, int], Sequence[Window]]  # of (cron expression, after, lasting, count)


class ReservationService:
    """Its methods run in the web server's event loop, but `renew`.

    Args:
        asking: the way to the leader.
        again: the next windows of a cron expression; raises ConfigError.
        check_playbook: raises an RmError where a maintenance may not run it; is it anybody's who may name
            any file of this machine?
    """

    def __init__(
        self,
        *,
        asking: Asking,
        leader: Leader,
        clock: Clock,
        again: Again,
        check_playbook: Callable[[str, bool], None],
    ) -> None:
        self._asking = asking
        self._leader = leader
        self._clock = clock
        self._windows_of = again
        self._check_playbook = check_playbook

    async def reservations(self) -> Sequence[HostReservation]:
        def ask(cycle: Cycle, now_us: int) -> list[HostReservation]:
            return list(cycle.state.reservations.values())

        found: Sequence[HostReservation] = await self._asking.ask(ask)
        return found

    async def create(self, wanted: Mapping[str, Any], by: str, any_file: bool = False) -> HostReservation:
        """Of the fields of a ReservationRequest. `any_file`: its playbook may be any file of this machine."""
        self._check(wanted, any_file)
        now_us = self._clock.now_us()
        choice = Choice(**{name: wanted[name] for name in wanted if name in CHOOSES})
        new = HostReservation(
            name=wanted["name"],
            hosts=(),
            windows=self._windows(wanted, None, now_us),
            cron=wanted.get("cron", ""),
            lasts_us=_lasts_us(wanted, None, now_us),
            by=by,
            since_us=now_us,
            **_told(wanted),
        )
        return await self._request(
            new.name, lambda state: ev.ReservationSet(requests.made(state, new, choice, now_us))
        )

    async def change(
        self,
        name: str,
        wanted: Mapping[str, Any],
        by: str,
        may_play: bool = False,
        any_file: bool = False,
    ) -> HostReservation:
        """Of the fields of a ReservationUpdate. `may_play`: also of one in which a playbook runs: who says
        when and on which hosts that is, lets it run. `any_file` as for `create`.

        Raises:
            Forbidden: a playbook runs in it.
        """
        self._check(wanted, any_file)
        now_us = self._clock.now_us()

        def make(state: ClusterState) -> ev.Event:
            old = requests.known(state, name)
            if old.playbook and not may_play:
                raise Forbidden(
                    f"A playbook runs in reservation {name}: only an administrator may change it.",
                    "Delete it, or ask an administrator.",
                )
            new = replace(old, **_told(wanted))
            if wanted.keys() & {"start_us", "end_us", "lasts_us", "cron"}:
                new = replace(
                    new,
                    windows=self._windows(wanted, old, now_us),
                    cron=wanted.get("cron", old.cron),
                    lasts_us=_lasts_us(wanted, old, now_us),
                )
            choice = Choice(hosts=tuple(wanted["hosts"])) if "hosts" in wanted else None
            return ev.ReservationSet(requests.changed(state, new, choice, now_us))

        return await self._request(name, make)

    def _check(self, wanted: Mapping[str, Any], any_file: bool) -> None:
        if playbook := wanted.get("playbook", ""):
            self._check_playbook(playbook, any_file)

    async def delete(self, name: str, by: str) -> HostReservation:
        gone: list[HostReservation] = []

        def make(state: ClusterState) -> list[ev.Event]:
            gone[:] = [requests.may_go(state, name)]
            return [ev.ReservationDeleted(name, by)]

        await self._asking.request(make, alone=True)
        return gone[0]

    def renew(self) -> None:
        """Further windows of those that come again; in a thread of a timer."""
        found = self._leader.ask(lambda cycle, now_us: list(cycle.state.reservations.values())).result()
        for one in found:
            if one.cron and len(one.windows) <= WINDOWS // 2:
                after_us = max((begins for begins, _ in one.windows), default=self._clock.now_us())
                self._leader.post(
                    ev.ReservationRenewed(one.name, self._again(one.cron, one.lasts_us, after_us))
                )

    async def _request(self, name: str, make: Callable[[ClusterState], ev.Event]) -> HostReservation:
        made: HostReservation = await self._asking.request(
            lambda state: [make(state)], partial(requests.known, name=name), alone=True
        )
        return made

    def _windows(
        self, wanted: Mapping[str, Any], old: HostReservation | None, now_us: int
    ) -> tuple[Window, ...]:
        cron = wanted.get("cron", old.cron if old is not None else "")
        if cron and wanted.get("end_us") is not None:
            raise UsageError("What comes again has no end.", "Say how long it lasts each time.")
        lasts_us = _lasts_us(wanted, old, now_us)
        if cron:
            return self._again(cron, lasts_us, wanted.get("start_us") or now_us)
        begins_us = _begins_us(wanted, old, now_us)
        return ((begins_us, begins_us + lasts_us),)

    def _again(self, cron: str, lasts_us: int, after_us: int) -> tuple[Window, ...]:
        try:
            return tuple(self._windows_of(cron, after_us, lasts_us, WINDOWS))
        except ConfigError as error:  # it is not rm.toml's
            raise UsageError(error.what, error.hint) from None


def _told(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are as they were said."""
    found = {name: wanted[name] for name in ("maint", "ignore_jobs", "playbook", "comment") if name in wanted}
    return found | {name: tuple(wanted[name]) for name in ("users", "accounts") if name in wanted}


def _begins_us(wanted: Mapping[str, Any], old: HostReservation | None, now_us: int) -> int:
    begins_us: int | None = wanted.get("start_us")
    if begins_us is not None:
        return begins_us
    return old.windows[0][0] if old is not None and old.windows else now_us


def _lasts_us(wanted: Mapping[str, Any], old: HostReservation | None, now_us: int) -> int:
    lasts_us: int = wanted.get("lasts_us") or 0
    end_us: int | None = wanted.get("end_us")
    if lasts_us and end_us is not None:
        raise UsageError("The reservation has an end and a duration.", "Say one of them.")
    if end_us is not None:
        return end_us - _begins_us(wanted, old, now_us)
    if lasts_us or old is None:
        if not lasts_us:
            raise UsageError("The reservation has no end.", "Say --end or --duration.")
        return lasts_us
    return old.lasts_us
