"""A daemon until it leads: it waits for the lease, names who has it, and reads the state ahead."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from rm.collector import made_to_stay
from rm.config import Config, SharingConfig, licenses
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.journal.restoring import accounts_in, reservations_in, usage_in
from rm.core.model.network.fabric import fabric_of
from rm.core.ports import Clock
from rm.core.sharing.ledger import Billing, Ledger
from rm.core.store import Lease, Loaded, Store
from rm.daemon.leading.lease import HeldLease, Monotonic, Standby, patiently
from rm.errors import RmError
from rm.units import MBPS, SECOND_US
from rm.web.addresses import doors_of
from rm.web.standby import serve_standby

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What the store holds, and the state made of it; `recent_us`: how long ended jobs stay in it."""

    loaded: Loaded
    state: ClusterState
    recent_us: int


class Waiting:
    """One daemon's time before it leads: `lead`, then `state`."""

    def __init__(
        self, config: Config, store: Store, clock: Clock, holder: str, monotonic: Monotonic = time.monotonic
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._standby = Standby(
            store,
            clock,
            holder,
            lease_us=int(config.daemon.lease_s * SECOND_US),
            monotonic=monotonic,
            doors=doors_of(config),
        )
        self._ahead = ReadAhead(self._found)
        self.stood_by = False  # while another daemon led

    async def lead(self, stopped: asyncio.Event) -> HeldLease | None:
        """The lease, as soon as no other daemon leads; None when stopped while waiting."""
        standby = self._standby
        told: web.AppRunner | None = None
        try:
            while not stopped.is_set():
                lease = await asyncio.to_thread(patiently, standby.look, stopped.is_set)
                if lease is not None:
                    return lease
                if standby.is_silent:
                    self._ahead.read(standby.seen)
                if told is None:
                    told = await serve_standby(self._config, lambda: standby.leader)
                    self.stood_by = True
                await happened(stopped, standby.pause_s)
            return None
        finally:
            if told is not None:
                await told.cleanup()

    async def state(self, stopped: Callable[[], bool]) -> Found:
        """The state as the last commit of all left it; call it while leading."""

        def find() -> Found:
            found = self._ahead.result()
            if found is not None and found.loaded.version == self._store.lease().version:
                found.state.silent_since = dict.fromkeys(found.state.hosts, self._clock.now_us())
                return found
            return self._found()

        return await asyncio.to_thread(patiently, find, stopped)

    def _found(self) -> Found:
        config, now_us = self._config, self._clock.now_us()
        recent_us = int(config.jobs.recent_s * SECOND_US)
        with made_to_stay():  # while everybody waits
            loaded = self._store.load(ended_after_us=now_us - recent_us)
            network = {(m.source, m.destination): m.stats for m in loaded.measurements}
            counters = loaded.next_job_id, loaded.next_action_id
            state = rebuild(
                loaded.jobs,
                loaded.hosts,
                loaded.zones,
                network,
                *counters,
                now_us,
                fabric=fabric_of(
                    loaded.hosts,
                    config.fabric.spines,
                    config.fabric.uplink_mbps * MBPS,
                    config.fabric.dscp,
                ),
                licenses=licenses(config.jobs),
                reservations=reservations_in(loaded, _unreadable),
                accounts=accounts_in(loaded, _unreadable),
                ledger=Ledger(billing_of(config.sharing), usage_in(loaded, _unreadable)),
            )
        return Found(loaded, state, recent_us)


def billing_of(sharing: SharingConfig) -> Billing:
    half_life_us = int(sharing.half_life_days * 86_400 * SECOND_US)
    return Billing(gpu=sharing.gpu, cpu=sharing.cpu, mem_gib=sharing.mem_gib, half_life_us=half_life_us)


def _unreadable(name: str, error: Exception) -> None:
    log.error("the stored %s cannot be read: %s", name, error)


class ReadAhead:
    """Reads in a thread of its own, once for each silence of a leader: that takes seconds where a great many
    jobs wait, and a leader that has vanished commits nothing more."""

    def __init__(self, work: Callable[[], Found]) -> None:
        self._work = work
        self._since: Lease | None = None
        self._found: Found | None = None
        self._thread: threading.Thread | None = None

    def read(self, seen: Lease | None) -> None:
        """Begin, unless it is done or under way for this silence: the lease has not changed since."""
        if seen == self._since or (self._thread is not None and self._thread.is_alive()):
            return
        self._since, self._found = seen, None
        self._thread = threading.Thread(target=self._read, name="read ahead", daemon=True)
        self._thread.start()

    def result(self) -> Found | None:
        """What was read last, when it is there; None when nothing was, or the reading failed."""
        if self._thread is not None:
            self._thread.join()
        found, self._found = self._found, None
        return found

    def _read(self) -> None:
        try:
            self._found = self._work()
        except RmError as error:
            log.info("the state was not read ahead: %s", error)


async def happened(event: asyncio.Event, within_s: float) -> bool:
    try:
        return await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
