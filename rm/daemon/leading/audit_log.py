"""The audit log: added to by the leader, read from the store, pruned by age alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rm.core.people.audit import Act
from rm.core.ports import Clock
from rm.core.store import Store
from rm.daemon.leading.leader import Leader
from rm.units import DAY_US

log = logging.getLogger(__name__)


class AuditLog:
    def __init__(self, leader: Leader, store: Store, clock: Clock, keep_days: float) -> None:
        self._leader = leader
        self._store = store
        self._clock = clock
        self._keep_us = int(keep_days * DAY_US)

    async def record(self, act: Act) -> None:
        """Returns when it is durable."""
        await asyncio.wrap_future(self._leader.record(act))

    async def read(self, after: int, limit: int, since_us: int, user: str) -> Sequence[tuple[int, Act]]:
        return await asyncio.to_thread(self._store.acts, after, limit, since_us, user or None)

    def prune(self) -> int:
        forgotten = self._store.prune_acts(self._clock.now_us() - self._keep_us)
        if forgotten:
            log.info("forgot %d old entries of the audit log", forgotten)
        return forgotten
