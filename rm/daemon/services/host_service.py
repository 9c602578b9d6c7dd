"""The use cases about hosts and the network between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.fabric import uplink_name
from rm.core.model.host import Host, HostState
from rm.core.model.network import LinkStats, confidence
from rm.core.model.snapshot import Free
from rm.core.scheduling.cycle import Cycle
from rm.daemon.agents import Hosts
from rm.daemon.execution.claims import take_over
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.regulation.demands import link_demands
from rm.daemon.services.asking import Asking
from rm.daemon.services.host_keys import HostKeyDesk, Keys
from rm.errors import Conflict, NotFound

HOSTS_AT_ONCE = 200  # of an inventory, in one turn of the leader


class HostService(Asking):
    """`measure` measures the network now, of one zone or of all; `monitoring` forgets removed hosts."""

    def __init__(
        self,
        *,
        leader: Leader,
        hosts: Hosts,
        keys: Keys,
        measure: Callable[[str | None], Measured],
        monitoring: MonitorService | None,
    ) -> None:
        super().__init__(leader)
        self._hosts = hosts
        self._keys = HostKeyDesk(keys)
        self._measure = measure
        self.monitoring = monitoring

    async def hosts(self) -> Sequence[tuple[Host, Free | None, Sequence[int]]]:
        def ask(cycle: Cycle, now_us: int) -> list[tuple[Host, Free | None, Sequence[int]]]:
            state = cycle.state
            return [
                (
                    shown(h, state.jobs_on.get(h.name, set())),
                    state.free.get(h.name),
                    sorted(state.jobs_on.get(h.name, ())),
                )
                for h in state.hosts.values()
            ]

        answer: Sequence[tuple[Host, Free | None, Sequence[int]]] = await self._ask(ask)
        return answer

    async def add_hosts(self, hosts: Sequence[Host], by: str) -> Sequence[Host]:
        names = [h.name for h in hosts]
        for begin in range(0, len(hosts), HOSTS_AT_ONCE):
            part = hosts[begin : begin + HOSTS_AT_ONCE]
            await self._request(partial(_all_added, part), weight=len(part))

        def ask(cycle: Cycle, now_us: int) -> list[Host]:
            return [cycle.state.hosts[n] for n in names if n in cycle.state.hosts]

        added: list[Host] = await self._ask(ask)
        for host in added:
            self._hosts.add(host)
        return added

    async def drain(self, name: str, reason: str, by: str) -> Host:
        return await self._change_host(name, ev.HostDrained(name, by, reason))

    async def resume(self, name: str, by: str) -> Host:
        return await self._change_host(name, ev.HostResumed(name, by))

    async def adopt(self, name: str, stop_jobs: bool, by: str) -> Host:
        """Take the host over from another cluster; see `rm.daemon.execution.claims`."""
        host = await self._host(name)
        await take_over(self._hosts, name, stop_jobs)
        return host

    async def remove_host(self, name: str, by: str) -> Host:
        host = await self._host(name)

        def make(state: ClusterState) -> list[ev.Event]:
            if busy := sorted(state.jobs_on.get(name, ())):
                listed = ", ".join(map(str, busy))
                raise Conflict(
                    f"Host {name} still runs job {listed}.",
                    f"Drain it first: rmx host drain {name}",
                )
            return [ev.HostRemoved(name, by)]

        await self._request(make)
        self._hosts.remove(name)
        if self.monitoring is not None:
            await self.monitoring.forget_host(name)
        return host

    async def present_key(self, name: str) -> Mapping[str, Any]:
        return await self._keys.present(await self._host(name))

    async def accept_key(self, name: str, fingerprint: str, by: str) -> Mapping[str, Any]:
        host = await self._host(name)
        answer = await self._keys.accept(host, fingerprint)
        self._hosts.add(host)  # try again at once
        return answer

    async def links(self) -> Sequence[Mapping[str, Any]]:
        def ask(cycle: Cycle, now_us: int) -> list[dict[str, Any]]:
            state = cycle.state
            aligned = {link.link: link for link in state.alignment.links}
            demands = link_demands(cycle, now_us)
            rows = []
            for name, (capacity_bps, jobs) in known_links(state).items():
                link = aligned.get(name)
                rows.append(
                    {
                        "name": name,
                        "capacity_bps": capacity_bps,
                        "jobs": sorted(jobs),
                        "score": link.score if link else None,
                        "perimeter_us": link.perimeter_us if link else None,
                        "rotations": link.rotations if link else (),
                        "gap_us": link.gap_us if link else None,
                        "demands": demands.get(name, ()),
                    }
                )
            return rows

        answer: Sequence[Mapping[str, Any]] = await self._ask(ask)
        return answer

    async def network(self) -> Sequence[Mapping[str, Any]]:
        def look(cycle: Cycle, now_us: int) -> tuple[list[tuple[tuple[str, str], LinkStats]], int]:
            return list(cycle.state.network.items()), now_us

        pairs, now_us = await self._ask(look)

        def rows() -> list[dict[str, Any]]:
            return [
                {
                    "source": source,
                    "destination": destination,
                    "loss_pct": s.loss_pct,
                    "delay_us": s.delay_us,
                    "jitter_us": s.jitter_us,
                    "bandwidth_bps": s.bandwidth_bps,
                    "age_us": now_us - s.measured_at_us if s.measured_at_us else None,
                    "failures": s.failures,
                    "confidence": round(confidence(s, now_us), 4),
                }
                for (source, destination), s in pairs
            ]

        return await asyncio.to_thread(rows)

    async def measure(self, zone: str | None) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> None:
            if zone is not None and all(h.zone != zone for h in cycle.state.hosts.values()):
                raise NotFound(f"There is no zone '{zone}'.", "`rmx hosts` shows each host's zone.")

        await self._ask(ask)
        found = await asyncio.to_thread(self._measure, zone)
        return {
            "measured": found.pairs,
            "left_out": [{"host": name, "why": why} for name, why in found.left_out],
        }

    async def _host(self, name: str) -> Host:
        def ask(cycle: Cycle, now_us: int) -> Host:
            return known_host(cycle.state, name)

        host: Host = await self._ask(ask)
        return host

    async def _change_host(self, name: str, event: ev.Event) -> Host:
        def make(state: ClusterState) -> list[ev.Event]:
            known_host(state, name)
            return [event]

        def answer(state: ClusterState) -> Host:
            return shown(state.hosts[name], state.jobs_on.get(name, set()))

        host: Host = await self._request(make, answer)
        return host


def known_links(state: ClusterState) -> dict[str, tuple[int, set[int]]]:
    """Capacity and jobs of every host link, then of every leaf's uplinks (the jobs that cross it)."""
    found = {h.name: (h.nic_bps, state.jobs_on.get(h.name, set())) for h in state.hosts.values()}
    fabric = state.fabric
    if fabric is not None:
        for leaf in fabric.leaves(state.hosts):
            found[uplink_name(leaf)] = (fabric.capacity_bps, set())
        for placed in state.placed.values():
            for leaf in fabric.crossings(placed.placement.hosts):
                found.setdefault(uplink_name(leaf), (fabric.capacity_bps, set()))[1].add(placed.job)
    return found


def known_host(state: ClusterState, name: str) -> Host:
    if name not in state.hosts:
        raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.")
    return state.hosts[name]


def _all_added(hosts: Sequence[Host], state: ClusterState) -> list[ev.Event]:
    return [ev.HostAdded(host) for host in hosts]


def shown(host: Host, jobs: set[int]) -> Host:
    """The host with the state people ask about: a drained host is DRAINING while jobs run."""
    if not host.drained_by or host.state is HostState.DOWN:
        return host
    state = HostState.DRAINING if jobs else HostState.DRAINED
    return replace(host, state=state, reason=host.drained_by)
