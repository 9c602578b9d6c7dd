"""The use case of usage: what jobs used, added up by the database, which no other question waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from rm.core.ports import Clock
from rm.core.sharing.ended import Heap, Sums
from rm.core.sharing.usage_query import Asked, asked
from rm.core.store import Store
from rm.daemon.services.usage_totals import UsageTotals
from rm.units import DAY_US

log = logging.getLogger(__name__)

HOURS_KEPT_US = 40 * DAY_US  # a month by the hour; what is older is known by the day


class UsageService:
    """`keep_days`: how long days are known; `totals`: since this daemon leads."""

    def __init__(self, *, store: Store, clock: Clock, keep_days: float, totals: UsageTotals) -> None:
        self._store, self._clock, self._totals = store, clock, totals
        self._keep_us = int(keep_days * DAY_US)

    async def usage(
        self, by: Sequence[str], since_us: int, until_us: int, only: Sequence[tuple[str, str]]
    ) -> tuple[Asked, list[tuple[Heap, Sums]]]:
        """`until_us` 0: until now. What is forgotten by now is not asked for: the answer says since when.

        Raises:
            UsageError: it cannot be asked so.
        """
        now_us = self._clock.now_us()
        # this day is known by its hours
        days_since_us = min(now_us - self._keep_us, now_us // DAY_US * DAY_US)
        what = asked(by, since_us, until_us or now_us, only, now_us - HOURS_KEPT_US, days_since_us)
        return what, await asyncio.to_thread(self._store.usage, what)

    def totals(self) -> Mapping[str, Sums]:
        """By account, of what ended since this daemon leads."""
        return self._totals.now()

    def prune(self) -> int:
        now_us = self._clock.now_us()
        # a day longer than is asked for by the hour, so that no hour is missing at the edge
        forgotten = self._store.prune_usage(now_us - HOURS_KEPT_US - DAY_US, now_us - self._keep_us)
        if forgotten:
            log.info("forgot %d old sums of usage", forgotten)
        return forgotten
