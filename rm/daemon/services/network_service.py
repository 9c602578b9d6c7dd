"""The use cases about the network between the hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rm.core.jobs.state import ClusterState
from rm.core.model.network.fabric import uplink_name
from rm.core.model.network.links import LinkStats, confidence
from rm.core.scheduling.cycle import Cycle
from rm.daemon.monitoring.monitor import Measured
from rm.daemon.regulation.demands import link_demands
from rm.daemon.services.asking import Asking
from rm.errors import NotFound


class NetworkService:
    """`measure` measures the network now, of one zone or of all."""

    def __init__(self, *, asking: Asking, measure: Callable[[str | None], Measured]) -> None:
        self._asking = asking
        self._measure = measure

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

        answer: Sequence[Mapping[str, Any]] = await self._asking.ask(ask)
        return answer

    async def pairs(self) -> Sequence[Mapping[str, Any]]:
        def look(cycle: Cycle, now_us: int) -> tuple[list[tuple[tuple[str, str], LinkStats]], int]:
            return list(cycle.state.network.items()), now_us

        found, now_us = await self._asking.ask(look)

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
                for (source, destination), s in found
            ]

        return await asyncio.to_thread(rows)

    async def measure(self, zone: str | None) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> None:
            if zone is not None and all(h.zone != zone for h in cycle.state.hosts.values()):
                raise NotFound(f"There is no zone '{zone}'.", "`rmx hosts` shows each host's zone.")

        await self._asking.ask(ask)
        found = await asyncio.to_thread(self._measure, zone)
        return {
            "measured": found.pairs,
            "left_out": [{"host": name, "why": why} for name, why in found.left_out],
        }


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
