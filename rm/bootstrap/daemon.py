"""The daemon: made of its parts, run until it is stopped, and taken apart again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path

from rm import __version__
from rm.adapters.clock import SystemClock
from rm.adapters.cron import Timers, zone_of
from rm.adapters.hosts.fleet import Fleet
from rm.adapters.large_blocks import give_back_large_blocks
from rm.adapters.store.opening import open_store
from rm.adapters.store.sql import SqlStore
from rm.bootstrap.alerts import wire_alerts
from rm.bootstrap.checks import inventory_of, must_hold
from rm.bootstrap.choices import policies_of, ssh_settings
from rm.bootstrap.clients import wire_clients
from rm.bootstrap.ground import Ground
from rm.bootstrap.jobs import Jobs, watch_ends, wire_jobs
from rm.bootstrap.logs import start_logging
from rm.bootstrap.monitoring import Monitoring, wire_monitoring
from rm.bootstrap.process import make_state_dir, raise_descriptors
from rm.bootstrap.service import wire_service
from rm.bootstrap.waiting import Found, Waiting, happened
from rm.collector import pass_over_survivors
from rm.config import Config
from rm.core.model.host import Host
from rm.core.model.identity import ClusterIdentity
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.guarded import Faults
from rm.core.store import Damaged, StoredAction
from rm.daemon.leading.lease import HeldLease, patiently
from rm.daemon.leading.outbox import revivable
from rm.daemon.leading.witness import Witness
from rm.daemon.services.job_clients import JobClients
from rm.daemon.services.service import Service
from rm.errors import StaleLeader, StoreError
from rm.protocol.notifications import Asked, Reflecting, Streamed, Unasked
from rm.web.api import serve
from rm.web.doors.job_door import folder_of_doors
from rm.web.doors.listener import claimed
from rm.web.doors.port import given_up, opened
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import settings_of

log = logging.getLogger("rm")

WATCH_S = 1.0  # between two looks whether the lease is held
ANSWER_S = 5.0  # to questions that the database was asked before the end
SWITCH_S = 0.001  # a thread that thinks must not keep the event loop and the leader waiting


def run_daemon(config: Config, located: Callable[[str], str] = str) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Args:
        located: adds to a sentence about the configuration where that stands.

    Raises:
        RmError: it could not start, or lost its database or its lease.
    """
    start_logging(config)
    raise_descriptors()
    sys.setswitchinterval(SWITCH_S)
    pass_over_survivors()
    give_back_large_blocks()
    must_hold(config, located)  # a wrong rm.toml must fail before anything is touched
    faults = Faults(lambda sentence, error: log.error("%s", sentence, exc_info=error))
    policies = policies_of(config, faults)
    declared, left_out = inventory_of(config)
    for sentence in left_out:
        log.error("%s", sentence)
    make_state_dir(Path(config.daemon.state_dir))
    with claimed(config.daemon.socket, config.daemon.shared) as name:
        store = patiently(lambda: open_store(config.daemon.database, copied=_tell_of_copy))
        holder = f"{socket.gethostname()}:{config.daemon.socket}:{name}"
        with ExitStack() as ends:
            ends.callback(store.close)
            daemon = Daemon(
                config=config, located=located, store=store, policies=policies, faults=faults, holder=holder,
                declared=declared,
            )  # fmt: skip
            ends.callback(daemon.cut_off.cancel)
            asyncio.run(daemon.run())


class Daemon:
    """One life of the daemon over an open store; `declared` are the hosts of rm.toml's inventory, and
    `located` adds to a sentence about the configuration where that stands."""

    def __init__(
        self,
        *,
        config: Config,
        located: Callable[[str], str],
        store: SqlStore,
        policies: Policies,
        faults: Faults,
        holder: str,
        declared: Sequence[Host],
    ) -> None:
        self._config = config
        self._located = located
        self._holder = holder
        self._declared = declared
        self._store = store
        self._policies = policies
        self._faults = faults
        self._clock = SystemClock()
        self._fatal: str | None = None
        self._served = False  # until it was told to end
        self.cut_off = threading.Timer(ANSWER_S, self._end)
        self.cut_off.daemon = True

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)

        def fail(why: str) -> None:
            self._fatal = self._fatal or why  # what came first is the cause
            loop.call_soon_threadsafe(stopped.set)

        waiting = Waiting(config=self._config, store=self._store, clock=self._clock, holder=self._holder)
        lease = await waiting.lead(stopped)
        if lease is None:
            return
        lease.start(on_lost=fail)
        try:
            found = await waiting.state(stopped.is_set)
            await self._lead(lease, found, stopped, fail, stood_by=waiting.stood_by)
            self._served = True
        finally:
            await asyncio.to_thread(lease.give_back)
            self.cut_off.start()
        if self._fatal:
            raise StoreError(self._fatal, "Start the daemon again when the cause is gone.")

    def _end(self) -> None:
        """All has ended but threads that wait for a database that stands still, which nothing else ends."""
        log.warning("the database has not answered for %g s: the daemon ends without its answers", ANSWER_S)
        os._exit(0 if self._served and not self._fatal else StoreError.exit_code)

    async def _lead(
        self,
        lease: HeldLease,
        found: Found,
        stopped: asyncio.Event,
        fail: Callable[[str], None],
        *,
        stood_by: bool,
    ) -> None:
        """Lead until `stopped`, from the state that was `found`."""
        config, loaded = self._config, found.loaded
        witness = Witness(Path(config.daemon.state_dir))
        witness.check(loaded, config.daemon.database)
        actions, damaged = revivable(loaded.actions)

        async def by_database(work: Callable[[], None]) -> None:
            """A database that is away now is waited for, as before. Another daemon may lead when it is back:
            nothing is changed under it."""

            def as_leader() -> None:
                if not lease.renew():
                    raise StaleLeader("Another daemon took the lease of this database.")
                work()

            await asyncio.to_thread(patiently, as_leader, stopped.is_set)

        await by_database(lambda: self._set_aside([*loaded.damaged, *damaged]))
        led_at = f"{socket.gethostname()}:{config.daemon.socket}"
        ground = Ground(
            config=config,
            located=self._located,
            store=self._store,
            clock=self._clock,
            zone=zone_of(config.monitor.timezone),
            lease=lease,
            fail=fail,
            loaded=loaded,
            state=found.state,
            recent_us=found.recent_us,
            fleet=Fleet(ssh_settings(config), ClusterIdentity(loaded.cluster, led_at)),
        )
        timers = Timers(ground.zone)
        jobs = wire_jobs(ground=ground, policies=self._policies, witness=witness)
        watch_ends(ground=ground, jobs=jobs, timers=timers)
        monitoring = wire_monitoring(ground=ground, jobs=jobs, timers=timers)
        alerting = wire_alerts(ground=ground, jobs=jobs, monitoring=monitoring, timers=timers)
        service = wire_service(
            ground=ground, jobs=jobs, monitoring=monitoring, alerting=alerting, faults=self._faults,
            timers=timers,
        )  # fmt: skip
        if service.playbooks is not None:
            await by_database(service.playbooks.take_up)
        async with AsyncExitStack() as ends:
            ends.push_async_callback(asyncio.to_thread, _shut_down, ground, jobs)
            ends.callback(service.close)
            runner = await serve(service, config.daemon.socket, config, stood_by)
            ends.push_async_callback(runner.cleanup)
            if config.web.listen:
                opening = await opened(partial(self._serve_page, ends), waits=stood_by)
                ends.push_async_callback(given_up, opening)
            folder = ends.enter_context(folder_of_doors())
            clients = wire_clients(ground=ground, jobs=jobs, runner=runner, folder=folder)
            ends.push_async_callback(clients.close)
            # before the doors close: what clients wait for ends
            ends.push_async_callback(asyncio.to_thread, alerting.close)
            ends.callback(monitoring.archiving.close)
            ends.callback(monitoring.monitor.close)
            ends.push_async_callback(asyncio.to_thread, monitoring.streaming.close)
            if service.playbooks is not None:
                ends.push_async_callback(asyncio.to_thread, service.playbooks.close)
            ends.callback(timers.stop)
            await self._start(ground, jobs, monitoring, service, clients, actions)
            timers.start()
            log.info("rm %s leads with epoch %d on %s", __version__, lease.epoch, config.daemon.socket)
            while not await happened(stopped, WATCH_S):
                lease.watch()

    async def _serve_page(self, ends: AsyncExitStack) -> None:
        config = self._config
        page, url = await serve_page(
            config.daemon.socket, config.web.listen, settings_of(config.web), config.limits
        )
        ends.push_async_callback(page.cleanup)
        log.info("the page is at %s", url)

    async def _start(
        self,
        ground: Ground,
        jobs: Jobs,
        monitoring: Monitoring,
        service: Service,
        clients: JobClients,
        actions: tuple[StoredAction, ...],
    ) -> None:
        """Everything that runs by itself, and the channels to the hosts."""
        prober = monitoring.monitor.prober

        def hear(host: str, message: Unasked) -> None:
            if isinstance(message, Reflecting):
                prober.heard(host, message)
            elif isinstance(message, Streamed):
                jobs.streams.pass_on(host, message)
            elif isinstance(message, Asked):
                clients.asked(host, message)
            else:
                jobs.executor.on_event(host, message)

        known = list(ground.state.hosts.values())  # before the leader changes it
        jobs.regulator.start()
        jobs.admission.start()
        jobs.renewer.start()
        monitoring.archiving.start()
        if self._config.monitor.enabled:
            monitoring.streaming.start()
        ground.fleet.start(on_event=hear, on_state=jobs.executor.on_state, on_misfit=jobs.executor.on_misfit)
        jobs.leader.start(actions)
        for host in known:
            ground.fleet.add(host)
        if self._declared:
            await service.host_service.add_hosts(self._declared, "rm.toml", may_steer=True)

    def _set_aside(self, damaged: Collection[Damaged]) -> None:
        """Rows that cannot be read are kept apart: a daemon that does not start would be worse."""
        if damaged:
            self._store.set_aside(damaged, self._clock.now_us())
        for one in damaged:
            log.error("%s It is set aside; `rmx status` names it until it is dealt with.", one.why)


def _tell_of_copy(copy: Path) -> None:
    log.info("the database is upgraded; as it was before it is kept in %s", copy)


def _shut_down(ground: Ground, jobs: Jobs) -> None:
    jobs.renewer.stop()
    jobs.leader.stop()
    jobs.regulator.stop()
    jobs.admission.stop()
    ground.fleet.close()  # first: every waiting caller gets a host's answer
    jobs.executor.close()
