"""The daemon: made of its parts, run until it is stopped, and taken apart again."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from rm import __version__
from rm.adapters import sources as archives
from rm.adapters.clock import SystemClock
from rm.adapters.collector import look_at_all, pass_over_survivors
from rm.adapters.cron import Timers, interval_us, zone_of
from rm.adapters.hosts.fleet import Fleet
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.hosts.ssh import accept_key, pinned_key, present_key
from rm.adapters.playbook.inventory_files import hosts_for_daemon
from rm.adapters.playbook.shipped import agents_version
from rm.adapters.store.log_directory import LogDirectory
from rm.adapters.store.sql import SqlStore, open_store
from rm.bootstrap.checks import must_hold
from rm.bootstrap.choices import (
    alert_rules,
    channel_of,
    named_policies,
    policies_of,
    retention_of,
    ssh_settings,
    tuning_of,
)
from rm.bootstrap.logs import start_logging
from rm.bootstrap.waiting import Found, Waiting, happened
from rm.config import Config, licenses, options_for
from rm.core.jobs.actions import Launch
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.placed import is_heard, is_stray, placed_task
from rm.core.jobs.state import ClusterState
from rm.core.journal.journal import Recorder
from rm.core.model.fabric import fabric_of
from rm.core.model.host import Host
from rm.core.model.identity import ClusterIdentity
from rm.core.model.job import Job
from rm.core.model.logs import LogPlace
from rm.core.monitoring.mesh import Every, Mesh
from rm.core.monitoring.source import Source
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.guarded import Faults
from rm.core.store import Damaged
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.alerts.setup import channels_of
from rm.daemon.execution.deliver import Deliverer, deliveries
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.fence import Ids, fence_of
from rm.daemon.execution.launch import LaunchRules, launch_request
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome
from rm.daemon.execution.renewing import Renewer
from rm.daemon.leading.audit_log import AuditLog
from rm.daemon.leading.leader import Leader, revivable
from rm.daemon.leading.lease import HeldLease, patiently
from rm.daemon.leading.prune import prune, prune_history, prune_journal
from rm.daemon.leading.witness import Witness
from rm.daemon.monitoring.board import Board
from rm.daemon.monitoring.gaps import RotationGaps
from rm.daemon.monitoring.meshes import Meshes, meshes_of
from rm.daemon.monitoring.monitor import RETRY_S, Monitor
from rm.daemon.monitoring.service import MonitorService, mesh_timer, source_timer
from rm.daemon.monitoring.sources import Sources
from rm.daemon.regulation.regulator import Regulator
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.service import Service
from rm.daemon.services.steps_service import Steps
from rm.daemon.services.token_keeper import TokenKeeper
from rm.errors import ConfigError, RmError, StoreError
from rm.policies.regulate.controller import ControllerOptions
from rm.protocol import attempts as wire
from rm.protocol.notifications import Reflecting, Unasked
from rm.web.api import serve
from rm.web.listener import claimed
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import settings_of

log = logging.getLogger("rm")

US = 1_000_000
WATCH_S = 0.25  # between two looks whether the lease is held
DESCRIPTORS = 65_536
SWITCH_S = 0.001  # a thread that thinks must not keep the event loop and the leader waiting


class HostKeys:
    """Shows and pins host keys for the service."""

    def __init__(self, settings: SshSettings, fleet: Fleet) -> None:
        self._settings = settings
        self._fleet = fleet

    def present(self, host: Host) -> Mapping[str, Any]:
        kind, fingerprint, _ = present_key(host, self._settings)
        pinned = pinned_key(host, self._settings)
        return {
            "presented": {"type": kind, "fingerprint": fingerprint},
            "pinned": {"type": pinned[0], "fingerprint": pinned[1]} if pinned else None,
        }

    def accept(self, host: Host, fingerprint: str) -> Mapping[str, Any]:
        accept_key(host, fingerprint, self._settings)
        self._fleet.retry(host.name)
        return self.present(host)


def run_daemon(config: Config) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Raises:
        RmError: it could not start, or lost its database or its lease.
    """
    start_logging(config)
    raise_descriptors()
    sys.setswitchinterval(SWITCH_S)
    pass_over_survivors()
    must_hold(config)  # a wrong rm.toml must fail before anything is touched
    faults = Faults(lambda sentence, error: log.error("%s", sentence, exc_info=error))
    policies = policies_of(config, faults)
    declared = hosts_for_daemon(config.hosts.inventory)[0] if config.hosts.inventory else []
    make_state_dir(Path(config.daemon.state_dir))
    with claimed(config.daemon.socket, config.daemon.shared) as name:
        store = patiently(lambda: open_store(config.daemon.database))
        holder = f"{socket.gethostname()}:{config.daemon.socket}:{name}"
        try:
            asyncio.run(Daemon(config, store, policies, faults, holder, declared).run())
        finally:
            store.close()


def raise_descriptors() -> None:
    """Clients and hosts need many; a shell's 1,024 are for programs that use select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def log_reserve_bytes(config: Config, gathered: Path) -> int:
    """What logs leave of the disk to the database; of a small disk a tenth."""
    return min(config.limits.log_reserve_mb << 20, shutil.disk_usage(gathered).total // 10)


def log_place(config: Config, store: SqlStore) -> tuple[Path, LogPlace]:
    """Where logs are gathered, and what keeps them: every daemon that leads on this database must find them.

    `daemon.log_dir` when it is set; else the database, when it is PostgreSQL's, or a directory beside its
    file. What users printed is nobody else's business: the directory is the daemon's alone.
    """
    named, beside = config.daemon.log_dir, store.file or Path(config.daemon.state_dir, "rm")
    directory = Path(named) if named else beside.with_name("logs")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not named:
            directory.chmod(0o700)
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(
            f"The directory for logs {directory} cannot be used: {error.strerror or error}.",
            "Set daemon.log_dir to a directory that the daemon may write to.",
        ) from None
    kept = None if named else store.log_place(directory)
    return directory, kept or LogDirectory(directory)


def make_state_dir(path: Path) -> None:
    """The daemon's own files."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The state directory {path} cannot be used: {error.strerror or error}.",
            "Set daemon.state_dir to a directory that the daemon may write to.",
        ) from None


class Daemon:
    """One life of the daemon over an open store; `declared` are the hosts of rm.toml's inventory."""

    def __init__(
        self,
        config: Config,
        store: SqlStore,
        policies: Policies,
        faults: Faults,
        holder: str,
        declared: Sequence[Host] = (),
    ) -> None:
        self.config = config
        self.holder = holder
        self.declared = declared
        self.store = store
        self.policies = policies
        self.faults = faults
        self.clock = SystemClock()
        self.zone = zone_of(config.monitor.timezone)
        self.fatal: str | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)

        def fail(why: str) -> None:
            self.fatal = why
            loop.call_soon_threadsafe(stopped.set)

        waiting = Waiting(config=self.config, store=self.store, clock=self.clock, holder=self.holder)
        lease = await waiting.lead(stopped)
        if lease is None:
            return
        lease.on_lost = fail
        lease.start()
        try:
            await self._run(lease, await waiting.state(stopped.is_set), stopped, fail)
        finally:
            await asyncio.to_thread(self._give_back, lease)
        if self.fatal:
            raise StoreError(self.fatal, "Start the daemon again when the cause is gone.")

    async def _run(
        self, lease: HeldLease, found: Found, stopped: asyncio.Event, fail: Callable[[str], None]
    ) -> None:
        """Lead until `stopped`, from the state that was `found`."""
        config, store, clock, epoch = self.config, self.store, self.clock, lease.epoch
        gathered, logs = log_place(config, store)
        loaded, state, recent_us = found.loaded, found.state, found.recent_us
        witness = Witness(Path(config.daemon.state_dir))
        witness.check(loaded, config.daemon.database)
        actions, damaged = revivable(loaded.actions)
        self._set_aside([*loaded.damaged, *damaged])
        state.fabric = fabric_of(loaded.hosts, config.fabric.spines, config.fabric.uplink_mbps * 1_000_000)
        state.licenses = licenses(config.jobs)
        rules = Rules(
            int(config.jobs.grace_s * US),
            int(config.hosts.down_after_s * US),
            config.jobs.max_losses,
            config.jobs.dependency_never == "cancel",
            config.jobs.max_requeues,
        )
        cycle = Cycle(
            state,
            self.policies,
            rules,
            tuning_of(config),
        )
        recorder = Recorder(__version__, named_policies(config))
        leader = Leader(cycle, store, loaded.version, clock, recorder, recent_us)
        leader.on_fatal = fail
        leader.on_commit = witness.note

        fleet = Fleet(
            ssh_settings(config),
            lambda host, message: hear(host, message),
            lambda host, up, why: executor.on_state(host, up, why),
            lambda host, what: executor.on_misfit(host, what),
            ClusterIdentity(loaded.cluster, f"{socket.gethostname()}:{config.daemon.socket}"),
        )
        regulator = Regulator(
            fleet,
            leader.post,
            clock,
            options_for(config, "regulate", ControllerOptions),
            config.shaping,
            epoch,
        )
        home = LogHome(fleet, logs, gathered, config.jobs.max_log_bytes, log_reserve_bytes(config, gathered))
        executor = Executor(
            hosts=fleet,
            post=leader.post,
            clock=clock,
            leadership=Leadership(epoch, lambda: store.epoch() == epoch, fail, lambda: lease.holds),
            launch_of=self._launches(state, epoch),
            home=home,
            placed=lambda host, job, attempt, rank: placed_task(state, host, job, attempt, rank),
            is_stray=lambda host, job, attempt: is_stray(state, host, job, attempt),
            launch_within_us=int(config.hosts.down_after_s * US) // 2,
            on_iterations=regulator.iterations,
            owner_of=lambda job: state.jobs[job].spec.user if job in state.jobs else "",
            delivery_of=deliveries(state, os.uname().nodename, config.jobs.deliver),
            deliverer=Deliverer(logs, config.jobs.deliver),
        )
        leader.executor = executor

        def hear(host: str, message: Unasked) -> None:
            if isinstance(message, Reflecting):
                monitor.prober.heard(host, message)
            else:
                executor.on_event(host, message)

        leader.on_alignment = regulator.aligned
        meshes = self._meshes()
        board = Board(store.history, clock, self.zone, meshes.windows)
        board.forget_others(meshes.grids(), {h.name for h in loaded.hosts})
        monitor = Monitor(
            fleet,
            leader,
            clock,
            store.history,
            board,
            meshes.meshes,
            config.monitor,
            RotationGaps(leader, regulator.recent, clock),
            self._interval_us,
        )
        backlog = Backlog(config.limits.pending_jobs, config.limits.pending_bytes)
        backlog.changed(state.jobs.values())
        service = Service(
            leader,
            store,
            fleet,
            HostKeys(ssh_settings(config), fleet),
            regulator,
            monitor.measure,
            clock,
            logs,
            recent_us,
            {
                "version": __version__,
                "agents": agents_version(),
                "started_us": clock.now_us(),
                "epoch": epoch,
            },
            policies_of(config, self.faults),
            backlog,
            executor.collecting,
        )
        renewer = Renewer(fleet, epoch, lambda host: is_heard(state, host), lambda: lease.holds)
        renewer.jobs_changed(state.jobs.values())

        def jobs_changed(jobs: list[Job]) -> None:
            renewer.jobs_changed(jobs)
            service.jobs_changed(jobs)

        leader.on_jobs = jobs_changed
        service.steps = Steps(fleet)
        service.policy_faults = self.faults.sentences
        tokens = service.tokens = TokenKeeper(leader, clock, loaded.tokens)
        audit = service.audit = AuditLog(leader, store, clock, config.audit.keep_days)

        timers = Timers(self.zone)
        keep = retention_of(config)
        followed = timers if config.monitor.enabled else None
        monitoring = service.monitoring = MonitorService(
            monitor,
            leader,
            store.history,
            clock,
            followed,
            keep,
            meshes.malformed,
            self._sources(leader, board, meshes, timers),
        )
        timers.every(60, "tokens", tokens.write_down)
        timers.every(3600, "look for garbage", look_at_all)
        timers.every(3600, "prune the audit log", audit.prune)
        kept = (config.jobs.keep_days, config.jobs.keep_finished)
        timers.every(3600, "prune", lambda: prune(store, logs, clock, *kept))
        timers.every(
            3600, "prune the journal", lambda: prune_journal(store, clock, config.daemon.journal_days)
        )
        timers.every(600, "prune the history", lambda: prune_history(store.history, clock, keep))
        if config.monitor.enabled:
            self._follow(timers, monitor)
        alerting = self._alerting(leader, fleet, monitoring, regulator, meshes, loaded.documents)
        service.alerting = alerting
        if config.alerts.enabled:
            timers.every(config.alerts.every_s, "alerts", alerting.look)

        runner = await serve(service, config.daemon.socket, config)
        page: web.AppRunner | None = None
        try:
            if config.web.listen:
                page, url = await serve_page(
                    config.daemon.socket, config.web.listen, settings_of(config.web), config.limits
                )
                log.info("the page is at %s", url)
            regulator.start()
            renewer.start()
            leader.start(actions)
            for host in list(state.hosts.values()):
                fleet.add(host)
            if self.declared:
                await service.add_hosts(self.declared, "rm.toml")
            timers.start()
            log.info("rm %s leads with epoch %d on %s", __version__, epoch, config.daemon.socket)
            while not await happened(stopped, WATCH_S):
                lease.watch()
        finally:
            timers.stop()
            monitor.close()
            await asyncio.to_thread(alerting.close)
            if page is not None:
                await page.cleanup()
            await runner.cleanup()
            service.close()
            renewer.stop()
            await asyncio.to_thread(self._shut_down, leader, executor, regulator, fleet)

    def _interval_us(self, mesh: Mesh) -> int:
        return interval_us(mesh.schedule, self.zone, self.clock.now_us())

    def _meshes(self) -> Meshes:
        return meshes_of(self.config.monitor, self._interval_us)

    def _follow(self, timers: Timers, monitor: Monitor) -> None:
        """Run each mesh by its schedule, also what was missed while no daemon ran."""
        for mesh in monitor.meshes.values():
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
        timers.follow("confirm", Every(round(RETRY_S * US)), monitor.confirm)

    def _alerting(
        self,
        leader: Leader,
        fleet: Fleet,
        monitoring: MonitorService,
        regulator: Regulator,
        meshes: Meshes,
        stored: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> Alerting:
        return Alerting(
            leader,
            fleet,
            self.clock,
            monitoring.cells,
            regulator.standings,
            meshes.windows,
            self.zone,
            alert_rules(self.config),
            {table.name: channel_of(table) for table in channels_of(self.config.alerts.channel)},
            self.config.alerts,
            stored,
            socket.gethostname(),
            self.config.ssh.connect_timeout_s,
        )

    def _sources(self, leader: Leader, board: Board, meshes: Meshes, timers: Timers) -> Sources:
        """The archives of others, read while this daemon monitors."""

        def read(source: Source, since_us: int, until_us: int, names: Mapping[str, str]) -> archives.Found:
            return archives.read(source, archives.Span(since_us, until_us, names))

        history = self.store.history
        sources = Sources(meshes.sources, meshes.malformed_sources, leader, history, board, self.clock, read)
        if self.config.monitor.enabled:
            for source in meshes.sources:
                state = sources.state(source)
                timers.follow(
                    source_timer(source.name),
                    source.grid.schedule,
                    partial(sources.scheduled, source.name),
                    state.begun_us,
                    paused=bool(state.paused_by),
                )
        return sources

    def _set_aside(self, damaged: Collection[Damaged]) -> None:
        """Rows that cannot be read are kept apart: a daemon that does not start would be worse."""
        if damaged:
            self.store.set_aside(damaged, self.clock.now_us())
        for one in damaged:
            log.error("%s It is set aside; `rmx status` names it until it is dealt with.", one.why)

    def _launches(self, state: ClusterState, epoch: int) -> Callable[[Launch], wire.Launch]:
        config = self.config
        rules = LaunchRules(
            int(config.jobs.grace_s * US),
            config.jobs.allow_root,
            config.jobs.run_root_as,
            config.jobs.cluster_name,
            config.jobs.gpu_ids == "index",
            config.hosts.agent_dir,
            fence_of(config.fence),
            config.jobs.max_log_bytes,
            config.hosts.log_reserve_mb << 20,
            Ids() if config.fence.check_ids else lambda user: None,
        )
        return launch_request(state, rules, epoch)

    def _shut_down(self, leader: Leader, executor: Executor, regulator: Regulator, fleet: Fleet) -> None:
        leader.stop()
        regulator.stop()
        fleet.close()  # first: every waiting caller gets a host's answer
        executor.close()

    def _give_back(self, lease: HeldLease) -> None:
        lease.stop()
        try:
            self.store.release_lease()
        except RmError as error:
            log.warning("the lease was not given back: %s", error)
