"""What the HTTP API offers of monitoring: meshes, their grids, the history; runs, pauses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rm.core.model.host import Host
from rm.core.model.network.links import bandwidth_confidence
from rm.core.monitoring.cells import Cell, Change, Status
from rm.core.monitoring.history import History, Retention, Sample, Summary
from rm.core.monitoring.mesh import Mesh, MeshState
from rm.core.monitoring.pairing import Pairing
from rm.core.monitoring.source import Source
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.leading.leader import Leader
from rm.daemon.monitoring.monitor import Monitor, up_of
from rm.daemon.monitoring.rows import (
    cell_json,
    change_json,
    checks_in,
    hosts_in,
    sample_json,
    schedule_text,
    sides_json,
    state_json,
    summary_json,
)
from rm.daemon.monitoring.sources import Sources
from rm.errors import NotFound, StoreError
from rm.units import DAY_US, HOUR_US, name_order

log = logging.getLogger(__name__)

MESH = "mesh"  # the kind of a row that is not an archive's
WINDOW = ("mesh", "when", "hosts", "begins_us", "ends_us")
POINTS = 2_000  # of a history, at most, before the next longer span is taken


class Follower(Protocol):
    """The timers, as far as meshes are concerned."""

    def pause(self, name: str) -> None: ...
    def resume(self, name: str) -> None: ...
    def next_us(self, name: str) -> int | None: ...


class MonitorService:
    """One per daemon; its methods run in the web server's event loop."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        leader: Leader,
        history: History,
        clock: Clock,
        timers: Follower | None,
        keep: Retention,
        malformed: Sequence[tuple[str, str]],
        sources: Sources,
        archives: Callable[[], Mapping[str, Any]] = lambda: {"archives": [], "malformed": []},
    ) -> None:
        self._monitor = monitor
        self._leader = leader
        self._history = history
        self._clock = clock
        self._timers = timers
        self._keep = keep
        self._malformed = malformed
        self._sources = sources
        self._archives = archives

    async def meshes(self) -> Mapping[str, Any]:
        hosts = await self._hosts()

        def look() -> dict[str, Any]:
            rows = [self._mesh_row(mesh, hosts) for mesh in self._monitor.meshes.values()]
            rows += [self._source_row(source, hosts) for source in self._sources.sources.values()]
            windows = self._monitor.board.windows(self._grids(), hosts)
            return {
                "meshes": rows,
                "malformed": [{"name": n, "message": m} for n, m in self._malformed],
                "maintenance": [dict(zip(WINDOW, window, strict=True)) for window in windows],
            }

        return await asyncio.to_thread(look)

    def _grids(self) -> list[Mesh]:
        """Of every mesh and archive."""
        return [*self._monitor.meshes.values(), *(s.grid for s in self._sources.sources.values())]

    def cells(self, hosts: Mapping[str, Host]) -> list[Cell]:
        """All cells as they are now."""
        return [cell for mesh in self._grids() for cell in self._cells(mesh, hosts)]

    def paused(self) -> set[str]:
        """The meshes and archives that are paused."""
        sources = self._sources
        found = {name for name in self._monitor.meshes if self._monitor.state(name).paused_by}
        return found | {s.mesh for s in sources.sources.values() if sources.state(s).paused_by}

    def _cells(self, mesh: Mesh, hosts: Mapping[str, Host]) -> list[Cell]:
        """The cells of a mesh, or of an archive's grid, as they are now."""
        source, board = self._sources.of_grid(mesh.name), self._monitor.board
        if source is not None:
            return board.cells(mesh, hosts, source.expect_us)
        pairing = Pairing(mesh, hosts.values(), up_of(hosts.values()))
        return board.cells(mesh, hosts, self._monitor.every_us(mesh), pairing)

    def _mesh_row(self, mesh: Mesh, hosts: Mapping[str, Host]) -> dict[str, Any]:
        state = self._monitor.state(mesh.name)
        running = mesh.is_continuous or self._monitor.is_running(mesh.name)
        every_us, cells = self._monitor.every_us(mesh), self._cells(mesh, hosts)
        return {
            "kind": MESH,
            "complaint": self._monitor.complaint(mesh),
            "tests": mesh.tests,
            "checks": mesh.checks,
            "hosts": [h.name for h in hosts.values() if mesh.selects(h)],
            "sides": sides_json(mesh, hosts),
            "without": sorted(map(sorted, mesh.without)),
            **self._row(mesh, state, running, every_us, mesh_timer(mesh.name), cells),
        }

    def _source_row(self, source: Source, hosts: Mapping[str, Host]) -> dict[str, Any]:
        """Of an archive's grid: what it has, nobody knows before it was read."""
        mesh, state = source.grid, self._sources.state(source)
        cells = self._cells(mesh, hosts)
        running = self._sources.is_running(source.name)
        return {
            "kind": source.kind,
            "complaint": "",
            "tests": (),
            "checks": checks_in(cells),
            "hosts": [h.name for h in hosts_in(cells, hosts)],
            "sides": None,
            "without": [],
            **self._row(mesh, state, running, source.expect_us, source_timer(source.name), cells),
        }

    def _row(
        self, mesh: Mesh, state: MeshState, running: bool, every_us: int, timer: str, cells: Sequence[Cell]
    ) -> dict[str, Any]:
        counts = dict.fromkeys((s.word for s in Status), 0)
        for cell in cells:
            counts[cell.status.word] += 1
        return {
            "name": mesh.name,
            "schedule": schedule_text(mesh),
            "state": "paused" if state.paused_by else "running" if running else "waiting",
            "paused_by": state.paused_by or None,
            "next_us": self._timers.next_us(timer) if self._timers else None,
            "begun_us": state.begun_us or None,
            "ended_us": state.ended_us or None,
            "turn": state.turn,
            "rounds": state.cycle,
            "measured": state.measured,
            "failed": state.failed,
            "skipped": state.skipped,
            "every_us": every_us,
            "jitter_us": mesh.jitter_us,
            "slip_us": mesh.slip_us,
            "packets": mesh.packets,
            "spacing_us": mesh.spacing_us,
            "duration_us": mesh.duration_us,
            "rate_bps": mesh.rate_bps,
            "service": {k: v for k, v in asdict(mesh.service).items() if v} if mesh.is_of_services else {},
            "retry_attempts": mesh.attempts,
            "thresholds": asdict(mesh.thresholds),
            "statuses": counts,
        }

    async def grid(self, name: str) -> Mapping[str, Any]:
        """The cells of one mesh or archive, and its hosts, by name."""
        source = self._sources.of_grid(name)
        mesh, hosts = self._mesh(name), await self._hosts()

        def look() -> dict[str, Any]:
            cells = self._cells(mesh, hosts)
            shown = hosts_in(cells, hosts) if source else [h for h in hosts.values() if mesh.selects(h)]
            return {
                "mesh": name,
                "checks": checks_in(cells) if source else mesh.checks,
                "hosts": [
                    {"name": h.name, "zone": h.zone} for h in sorted(shown, key=lambda h: name_order(h.name))
                ],
                "cells": [cell_json(c) for c in cells],
            }

        return await asyncio.to_thread(look)

    def _mesh(self, name: str) -> Mesh:
        """Of a mesh, or of an archive's grid. Raises NotFound."""
        source = self._sources.of_grid(name)
        return source.grid if source is not None else self._monitor.mesh(name)

    async def history(self, source: str, destination: str, span_us: int) -> Mapping[str, Any]:
        """One direction, the last `span_us`: single tries, or where they are too many or forgotten,
        hourly or daily summaries."""
        hosts = await self._hosts()
        for name in (source, destination):
            if name not in hosts:
                raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.")

        def look() -> dict[str, Any]:
            now_us = self._clock.now_us()
            since_us = max(0, now_us - span_us)
            samples: list[Sample] = []
            summaries: list[Summary] = []
            if span_us <= self._keep.raw_us:
                samples = self._history.samples(source, destination, since_us, limit=POINTS + 1)
            if not samples or len(samples) > POINTS:
                samples = []
                hourly = span_us <= min(self._keep.hourly_us, POINTS * HOUR_US)
                each_us = HOUR_US if hourly else DAY_US
                summaries = self._history.summaries(source, destination, each_us, since_us)
            return {
                "source": source,
                "destination": destination,
                "samples": [sample_json(s) for s in samples],
                "summaries": [summary_json(s) for s in summaries],
            }

        known = await self._known(source, destination)
        return {**await asyncio.to_thread(look), "now": known}

    async def changes(
        self, name: str, check: str, source: str, destination: str, span_us: int, limit: int
    ) -> Mapping[str, Any]:
        """How statuses of the mesh changed in the last `span_us`, the newest `limit`, in order of time;
        "" = any check or host."""
        self._mesh(name)
        hosts = await self._hosts()

        def look() -> list[Change]:
            since_us = max(0, self._clock.now_us() - span_us)
            return self._history.changes(name, check, source, destination, since_us, limit)

        found = await asyncio.to_thread(look)
        known = [c for c in found if c.source in hosts and c.destination in hosts]
        return {"mesh": name, "changes": [change_json(c) for c in known]}

    async def forget_host(self, name: str) -> None:
        """The host was removed: of one of its name that comes later nothing is known."""
        try:
            await asyncio.to_thread(self._monitor.board.forget_host, name)
        except StoreError as error:
            log.warning("the measurements of host %s are forgotten at the next start: %s", name, error)

    async def run(self, name: str, everything: bool) -> Mapping[str, Any]:
        """The mesh's next rounds now, or all of them, or a reading of the archive; answered when it is
        over."""
        source = self._sources.of_grid(name)
        if source is not None:
            await asyncio.to_thread(self._sources.read, source.name)
            return state_json(self._sources.state(source))
        state = await asyncio.to_thread(self._monitor.run, name, everything)
        return state_json(state)

    async def pause(self, name: str, by: str) -> Mapping[str, Any]:
        return await self._pausing(name, by, self._timers.pause if self._timers else None)

    async def resume(self, name: str) -> Mapping[str, Any]:
        return await self._pausing(name, "", self._timers.resume if self._timers else None)

    async def _pausing(self, name: str, by: str, tell: Callable[[str], None] | None) -> Mapping[str, Any]:
        source = self._sources.of_grid(name)
        if source is not None:
            state = await asyncio.to_thread(self._sources.set_paused, source, by)
        else:
            state = await asyncio.to_thread(self._monitor.set_paused, name, by)
        if tell is not None and not self._mesh(name).is_continuous:
            tell(source_timer(source.name) if source is not None else mesh_timer(name))
        return state_json(state)

    async def sources(self) -> Mapping[str, Any]:
        """The archives that are read, with what became of it."""
        return self._sources.rows()

    async def archives(self) -> Mapping[str, Any]:
        """The archives that results are sent to, and what became of them."""
        return self._archives()

    async def read_source(self, name: str) -> Mapping[str, Any]:
        """Read an archive now; answered when it is over."""
        await asyncio.to_thread(self._sources.read, name)
        return next(row for row in self._sources.rows()["sources"] if row["name"] == name)

    async def _hosts(self) -> Mapping[str, Host]:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Host]:
            return dict(cycle.state.hosts)

        hosts: dict[str, Host] = await asyncio.wrap_future(self._leader.ask(ask))
        return hosts

    async def _known(self, source: str, destination: str) -> Mapping[str, Any] | None:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Any] | None:
            view = cycle.state.snapshot(now_us).network
            stats = view.pairs.get((source, destination))
            if stats is None:
                return None
            return {
                "loss_pct": stats.loss_pct,
                "delay_us": stats.delay_us,
                "jitter_us": stats.jitter_us,
                "bandwidth_bps": stats.bandwidth_bps,
                "age_us": view.age_us(source, destination),
                "failures": stats.failures,
                "confidence": view.confidence(source, destination),
                "bandwidth_confidence": bandwidth_confidence(stats, now_us),
            }

        known: dict[str, Any] | None = await asyncio.wrap_future(self._leader.ask(ask))
        return known


def mesh_timer(name: str) -> str:
    """The name of a mesh's timer."""
    return f"mesh {name}"


def source_timer(name: str) -> str:
    """The name of an archive's timer."""
    return f"source {name}"
