"""What the HTTP API offers of monitoring: meshes, their grids, the history; runs, pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rm.core.cells import Cell, Status
from rm.core.cycle import Cycle
from rm.core.history import History, Retention, Sample, Summary
from rm.core.host import Host
from rm.core.mesh import Cron, Mesh, MeshState
from rm.core.network import bandwidth_confidence
from rm.core.ports import Clock
from rm.daemon.leader import Leader
from rm.daemon.monitor import Monitor
from rm.daemon.sources import Sources
from rm.errors import NotFound
from rm.units import DAY_US, HOUR_US, format_duration

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
        monitor: Monitor,
        leader: Leader,
        history: History,
        clock: Clock,
        timers: Follower | None,
        keep: Retention,
        malformed: Sequence[tuple[str, str]] = (),
        sources: Sources | None = None,
    ) -> None:
        self._monitor = monitor
        self._leader = leader
        self._history = history
        self._clock = clock
        self._timers = timers
        self._keep = keep
        self._malformed = malformed
        self._sources = sources

    async def meshes(self) -> Mapping[str, Any]:
        hosts = await self._hosts()

        def look() -> dict[str, Any]:
            rows = [self._mesh_row(mesh, hosts) for mesh in self._monitor.meshes.values()]
            windows = self._monitor.board.windows(self._monitor.meshes.values(), hosts)
            return {
                "meshes": rows,
                "malformed": [{"name": n, "message": m} for n, m in self._malformed],
                "maintenance": [dict(zip(WINDOW, window, strict=True)) for window in windows],
            }

        return await asyncio.to_thread(look)

    def _mesh_row(self, mesh: Mesh, hosts: Mapping[str, Host]) -> dict[str, Any]:
        monitor, state = self._monitor, self._monitor.state(mesh.name)
        every_us = monitor.every_us(mesh)
        counts = dict.fromkeys((s.word for s in Status), 0)
        for cell in monitor.board.cells(mesh, hosts, every_us):
            counts[cell.status.word] += 1
        running = monitor.is_running(mesh.name)
        return {
            "name": mesh.name,
            "schedule": schedule_text(mesh),
            "tests": mesh.tests,
            "checks": mesh.checks,
            "hosts": [h.name for h in hosts.values() if mesh.selects(h)],
            "state": "paused" if state.paused_by else "running" if running else "waiting",
            "paused_by": state.paused_by or None,
            "next_us": self._timers.next_us(mesh_timer(mesh.name)) if self._timers else None,
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
            "retry_attempts": mesh.attempts,
            "thresholds": asdict(mesh.thresholds),
            "statuses": counts,
        }

    async def grid(self, name: str) -> Mapping[str, Any]:
        """The cells of one mesh, and its hosts in inventory order."""
        mesh, hosts = self._monitor.mesh(name), await self._hosts()

        def look() -> dict[str, Any]:
            cells = self._monitor.board.cells(mesh, hosts, self._monitor.every_us(mesh))
            return {
                "mesh": name,
                "checks": mesh.checks,
                "hosts": [{"name": h.name, "zone": h.zone} for h in hosts.values() if mesh.selects(h)],
                "cells": [cell_json(c) for c in cells],
            }

        return await asyncio.to_thread(look)

    async def history(self, source: str, destination: str, span_us: int) -> Mapping[str, Any]:
        """One direction, the last `span_us`: single tries, or where they are too many or forgotten,
        hourly or daily summaries."""
        for name in (source, destination):
            if name not in await self._hosts():
                raise NotFound(f"There is no host '{name}'.", "`rmx hosts` lists them.")

        def look() -> dict[str, Any]:
            now_us = self._clock.now_us()
            since_us = now_us - span_us
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

    async def run(self, name: str, everything: bool) -> Mapping[str, Any]:
        """The mesh's next rounds now, or all of them; answered when they are over."""
        state = await asyncio.to_thread(self._monitor.run, name, everything)
        return state_json(state)

    async def pause(self, name: str, by: str) -> Mapping[str, Any]:
        return await self._pausing(name, by, self._timers.pause if self._timers else None)

    async def resume(self, name: str) -> Mapping[str, Any]:
        return await self._pausing(name, "", self._timers.resume if self._timers else None)

    async def _pausing(self, name: str, by: str, tell: Callable[[str], None] | None) -> Mapping[str, Any]:
        state = await asyncio.to_thread(self._monitor.set_paused, name, by)
        if tell is not None:
            tell(mesh_timer(name))
        return state_json(state)

    async def sources(self) -> Mapping[str, Any]:
        """The archives that are read, with what became of it."""
        return self._sources.rows() if self._sources is not None else {"sources": [], "malformed": []}

    async def read_source(self, name: str) -> Mapping[str, Any]:
        """Read an archive now; answered when it is over."""
        if self._sources is None:
            raise NotFound(f"There is no source '{name}'.")
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


def schedule_text(mesh: Mesh) -> str:
    schedule = mesh.schedule
    if isinstance(schedule, Cron):
        return schedule.expression
    return f"every {format_duration(schedule.interval_us)}"


def cell_json(cell: Cell) -> dict[str, Any]:
    return {
        "check": cell.check,
        "source": cell.source,
        "destination": cell.destination,
        "status": int(cell.status),
        "message": cell.message,
        "value": cell.value,
        "checked_us": cell.checked_us or None,
        "since_us": cell.since_us or None,
        "result": int(cell.result),
        "streak": cell.streak,
    }


def sample_json(sample: Sample) -> dict[str, Any]:
    return {"at_us": sample.at_us, "mesh": sample.mesh, "values": sample.values, "failed": sample.failed}


def summary_json(one: Summary) -> dict[str, Any]:
    stats = {
        name: {"min": s.least, "mean": s.mean, "max": s.most, "count": s.count}
        for name, s in one.stats.items()
    }
    return {
        "start_us": one.start_us,
        "span_us": one.span_us,
        "stats": stats,
        "tries": one.tries,
        "failures": one.failures,
    }


def state_json(state: MeshState) -> dict[str, Any]:
    return {
        "name": state.mesh,
        "paused_by": state.paused_by or None,
        "begun_us": state.begun_us or None,
        "ended_us": state.ended_us or None,
        "turn": state.turn,
        "rounds": state.cycle,
        "measured": state.measured,
        "failed": state.failed,
        "skipped": state.skipped,
    }
