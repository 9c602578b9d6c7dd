"""Old finished jobs leave the database, and their logs the place that keeps them; so do old entries of the
journal, and old measurements, of which summaries stay."""

from __future__ import annotations

import logging

from rm.core.model.logs import LogPlace
from rm.core.monitoring.history import History, Retention
from rm.core.ports import Clock
from rm.core.store import Store
from rm.units import DAY_US

log = logging.getLogger(__name__)


def prune(store: Store, logs: LogPlace, clock: Clock, keep_days: float, most: int, most_bytes: int) -> int:
    """Forget jobs that ended longer ago, all but the `most` that ended last, and of each user those before
    the last whose specifications take `most_bytes`; the number of them.

    Logs go when their job is not in the store any more, so that those of an interrupted run go the next time.
    """
    forgotten = store.prune(clock.now_us() - int(keep_days * DAY_US), most, most_bytes)
    if forgotten:
        left = store.ids()
        logs.forget(lambda job: job in left or store.job(job) is not None)  # it may be a new one
        log.info("forgot %d old jobs", forgotten)
    return forgotten


def prune_journal(store: Store, clock: Clock, keep_days: float) -> int:
    """Forget what is not needed to replay the last `keep_days`; the number of entries forgotten."""
    forgotten = store.prune_journal(clock.now_us() - int(keep_days * DAY_US))
    if forgotten:
        log.info("forgot %d old entries of the journal", forgotten)
    return forgotten


def prune_history(history: History, clock: Clock, keep: Retention) -> int:
    """Summarise the hours and days that are over, then forget what is old; the rows forgotten."""
    now_us = clock.now_us()
    made = history.roll_up(now_us)
    forgotten = history.prune(now_us, keep)
    if made or forgotten:
        log.info("the network's history: %d summaries made, %d old rows forgotten", made, forgotten)
    return forgotten
