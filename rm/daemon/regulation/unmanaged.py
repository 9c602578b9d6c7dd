"""What an iteration of each job in a rotation would take if nobody managed its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_not
from typing import NamedTuple

from rm.core.model.network.alignment import Alignment, LinkAlignment
from rm.core.model.network.fabric import Fabric
from rm.core.model.network.links import Link
from rm.core.model.snapshot import PlacedJob
from rm.daemon.regulation.running import Place, Running, View
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.unmanaged import unmanaged_periods

LINKS_A_TURN = 4  # that are estimated, some milliseconds each: pauses must not wait for that


@dataclass(frozen=True, slots=True)
class _Links:
    """The links as far as one job uses them."""

    hosts: Mapping[str, Place]
    fabric: Fabric | None
    links: Mapping[str, Link] = field(default_factory=dict)


class _Load(NamedTuple):
    """What a job puts on its links, and how long its iteration takes alone on them."""

    placed: PlacedJob
    fabric: Fabric | None
    period_us: int
    on: Mapping[str, LinkLoad]


class Without(NamedTuple):
    """An iteration of a job: alone on its links, and beside the others on them without management."""

    alone_us: int
    unmanaged_us: int


class Unmanaged:
    """Belongs to one thread. An estimate is worked out when it is first asked for, of a number of links each
    turn, and holds as long as the jobs on the link are the same.

    A job that is in rotations on several links takes as long as on the worst of them.
    """

    def __init__(self, model: str = "ring") -> None:
        self._model = model
        self._view = View()
        self._links: dict[int, list[LinkAlignment]] = {}  # of jobs with a schedule: where they are rotated
        self._found: dict[int, Without | None] = {}
        self._loads: dict[int, _Load] = {}
        self._periods: dict[str, tuple[list[_Load], Mapping[int, int]]] = {}
        self._left = LINKS_A_TURN

    def see(self, view: View) -> None:
        before, self._view, self._found = self._view, view, {}
        if view.alignment is not before.alignment:
            self._links = _rotated(view.alignment)
            there = {link.link for links in self._links.values() for link in links}
            for name in self._periods.keys() - there:
                del self._periods[name]
        for job in self._loads.keys() - view.running.keys():
            del self._loads[job]

    def turn(self) -> None:
        """Others may be worked out now."""
        self._left = LINKS_A_TURN

    def of(self, job: int) -> Without | None:
        """None: the job is in no rotation, it is not known of all jobs there what they send, or it is not
        worked out yet."""
        if job not in self._links:
            return None
        if job not in self._found:
            on = [self._on(link) for link in self._links[job]]
            if None in on:
                return None
            self._found[job] = self._longest(job, [one[job] for one in on if one is not None and job in one])
        return self._found[job]

    def _longest(self, job: int, unmanaged_us: Sequence[int]) -> Without | None:
        load = self._load(job)
        return Without(load.period_us, max(unmanaged_us)) if load is not None and unmanaged_us else None

    def _on(self, link: LinkAlignment) -> Mapping[int, int] | None:
        """The iteration of each job of the link; None: not in this turn."""
        found = [self._load(job) for job in link.jobs]
        loads = [load for load in found if load is not None and link.link in load.on]
        if len(loads) < len(link.jobs):
            return {}
        known = self._periods.get(link.link)
        if known is None or len(known[0]) != len(loads) or any(map(is_not, known[0], loads)):
            if self._left <= 0:
                return None
            self._left -= 1
            on = dict(zip(link.jobs, (load.on[link.link] for load in loads), strict=True))
            capacity = next(iter(on.values())).capacity
            whole = LinkLoad(capacity, {job: one.phases[job] for job, one in on.items()})
            alone_us = dict(zip(link.jobs, (load.period_us for load in loads), strict=True))
            known = self._periods[link.link] = loads, unmanaged_periods(whole, alone_us)
        return known[1]

    def _load(self, job: int) -> _Load | None:
        running, fabric = self._view.running.get(job), self._view.fabric
        if running is None:
            return None
        known = self._loads.get(job)
        if known is None or known.placed is not running.placed or known.fabric is not fabric:
            known = self._worked_out(running, fabric)
            if known is None:
                return None
            self._loads[job] = known
        return known

    def _worked_out(self, running: Running, fabric: Fabric | None) -> _Load | None:
        placed, hosts = running.placed, {place.host: place for place in running.places}
        if placed is None or not hosts.keys() >= set(placed.placement.hosts):
            return None
        demands, on = link_loads([placed], _Links(hosts, fabric), self._model)
        demand = demands.get(running.job)
        return _Load(placed, fabric, demand.period, on) if demand is not None else None


def _rotated(alignment: Alignment) -> dict[int, list[LinkAlignment]]:
    """By job with a schedule the links on which it is rotated against others."""
    found: dict[int, list[LinkAlignment]] = {schedule.job: [] for schedule in alignment.schedules}
    for link in alignment.links:
        if len(link.jobs) > 1:
            for rotation in link.rotations:
                if rotation.job in found:
                    found[rotation.job].append(link)
    return found
