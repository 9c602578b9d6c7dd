"""Monitoring: meshes of probes, archives of others, and what the API says of both."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rm.adapters import sources as archives
from rm.adapters.archives.sending import send
from rm.adapters.cron import Timers, interval_us
from rm.bootstrap.choices import retention_of
from rm.bootstrap.ground import Ground
from rm.bootstrap.jobs import Jobs
from rm.core.monitoring.mesh import Every, Mesh
from rm.core.monitoring.source import Source
from rm.daemon.monitoring.archiving import Archiving
from rm.daemon.monitoring.board import Board
from rm.daemon.monitoring.gaps import RotationGaps
from rm.daemon.monitoring.meshes import Meshes, meshes_of
from rm.daemon.monitoring.monitor import RETRY_S, Monitor
from rm.daemon.monitoring.service import MonitorService, mesh_timer, source_timer
from rm.daemon.monitoring.sources import Sources
from rm.daemon.monitoring.streaming import Streaming
from rm.units import SECOND_US

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Monitoring:
    monitor: Monitor
    service: MonitorService
    meshes: Meshes
    archiving: Archiving
    streaming: Streaming


def wire_monitoring(*, ground: Ground, jobs: Jobs, timers: Timers) -> Monitoring:
    """Each mesh and source has a timer, if this daemon monitors."""
    config, clock, history = ground.config, ground.clock, ground.store.history

    def every_us(mesh: Mesh) -> int:
        return interval_us(mesh.schedule, ground.zone, clock.now_us())

    meshes = meshes_of(config.monitor, every_us)
    for sentence in meshes.left_out():
        log.error("%s It is left out.", ground.located(sentence))
    board = Board(history, clock, zone=ground.zone, windows=meshes.windows)
    board.forget_others(meshes.grids(), {h.name for h in ground.loaded.hosts})
    archiving = Archiving(
        archives=meshes.archives,
        malformed=meshes.malformed_archives,
        send=send,
        clock=clock,
        results=ground.store.results,
    )
    monitor = Monitor(
        agents=ground.fleet,
        leader=jobs.leader,
        clock=clock,
        history=history,
        board=board,
        meshes=meshes.meshes,
        settings=config.monitor,
        gaps=RotationGaps(jobs.leader, jobs.regulator.recent, clock),
        interval_of=every_us,
        archives=archiving,
    )
    streaming = Streaming(
        agents=ground.fleet,
        monitor=monitor,
        clock=clock,
        epoch=ground.lease.epoch,
        cells=history.cells(),
        may_act=lambda: ground.lease.holds,
    )
    sources = Sources(
        sources=meshes.sources,
        malformed=meshes.malformed_sources,
        leader=jobs.leader,
        history=history,
        board=board,
        clock=clock,
        read=_read,
    )
    service = MonitorService(
        monitor=monitor,
        leader=jobs.leader,
        history=history,
        clock=clock,
        timers=timers if config.monitor.enabled else None,
        keep=retention_of(config),
        malformed=meshes.malformed,
        sources=sources,
        archives=archiving.rows,
    )
    if config.monitor.enabled:
        _follow_meshes(timers, monitor)
        _follow_sources(timers, sources)
    return Monitoring(
        monitor=monitor, service=service, meshes=meshes, archiving=archiving, streaming=streaming
    )


def _read(source: Source, since_us: int, until_us: int, names: Mapping[str, str]) -> archives.Found:
    return archives.read(source, archives.Span(since_us, until_us, names))


def _follow_meshes(timers: Timers, monitor: Monitor) -> None:
    """Run each mesh by its schedule, also what was missed while no daemon ran."""
    for mesh in (mesh for mesh in monitor.meshes.values() if not mesh.is_continuous):
        state = monitor.state(mesh.name)
        timers.follow(
            mesh_timer(mesh.name),
            mesh.schedule,
            partial(monitor.scheduled, mesh.name),
            state.begun_us,
            mesh.jitter_us,
            mesh.slip_us,
            bool(state.paused_by),
        )
    timers.follow("confirm", Every(round(RETRY_S * SECOND_US)), monitor.confirm)


def _follow_sources(timers: Timers, sources: Sources) -> None:
    """The archives of others, read while this daemon monitors."""
    for source in sources.sources.values():
        state = sources.state(source)
        timers.follow(
            source_timer(source.name),
            source.grid.schedule,
            partial(sources.scheduled, source.name),
            state.begun_us,
            paused=bool(state.paused_by),
        )
