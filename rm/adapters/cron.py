"""Timers of the daemon: the one place that knows APScheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

logging.getLogger("apscheduler").setLevel(logging.WARNING)


class Timers:
    """Runs functions at intervals in background threads; a missed run is made up for once."""

    def __init__(self) -> None:
        self._scheduler = BackgroundScheduler(timezone="UTC")

    def every(self, seconds: float, name: str, work: Callable[[], object], jitter_s: float = 0) -> None:
        """Call `work` every so many seconds, never twice at once."""
        self._scheduler.add_job(
            work,
            IntervalTrigger(seconds=seconds, jitter=jitter_s or None, timezone="UTC"),
            id=name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
