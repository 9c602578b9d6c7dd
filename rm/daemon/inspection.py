"""Inspection: measure a running job's traffic profile again, one job at a time.

Metronome, Sec. III-C: on a change of the traffic pattern, or after frequent readjustments, the
relevant jobs are inspected in turn. The phases come from the job's own byte counters on its
first host; where the job reports iterations, the period is theirs, which is more exact.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from statistics import median
from typing import TYPE_CHECKING, Any

from rm.core.traffic import Phase, TrafficProfile

if TYPE_CHECKING:
    from rm.daemon.regulator import Agents, Running

log = logging.getLogger(__name__)

WATCH_US = 3_000_000
MIN_CONFIDENCE = 0.5
CLEAN_ITERATIONS = 5


class Inspection:
    """A queue of jobs to profile. `done(running, profile or None)` is called for each."""

    def __init__(self, agents: Agents, done: Callable[[Running, TrafficProfile | None], None]) -> None:
        self._agents = agents
        self._done = done
        self._waiting: deque[tuple[Running, bool]] = deque()
        self._current: tuple[int, int] | None = None
        self._periods: list[int] = []

    @property
    def busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def begin(self, running: Running, reports: bool) -> None:
        """Profile this job when those before it are done; `reports`: it tells its iterations."""
        if self._current == (running.job, running.attempt) or any(
            w.job == running.job for w, _ in self._waiting
        ):
            return
        self._waiting.append((running, reports))
        self._next()

    def heard(self, job: int, attempt: int, net_us: int, comm_us: int | None) -> None:
        """An iteration of some job: `net_us` is its duration without waiting."""
        if self._current == (job, attempt):
            self._periods.append(net_us)

    def _next(self) -> None:
        if self._current is not None or not self._waiting:
            return
        running, reports = self._waiting.popleft()
        self._current, self._periods = (running.job, running.attempt), []
        place = running.places[0]
        future = self._agents.call(
            place.host,
            "profile",
            timeout_s=WATCH_US / 1e6 + 10,
            job=running.job,
            attempt=running.attempt,
            interface=place.interface,
            duration_us=WATCH_US,
        )
        future.add_done_callback(lambda f: self._ended(running, reports, f))

    def _ended(self, running: Running, reports: bool, future: Future[dict[str, Any]]) -> None:
        error = future.exception()
        profile = None
        if error is not None:
            log.warning("cannot profile job %d: %s", running.job, error)
        else:
            profile = profile_of(future.result(), self._periods if reports else [])
        self._current = None
        self._done(running, profile)
        self._next()


def profile_of(measured: dict[str, Any], periods_us: list[int]) -> TrafficProfile | None:
    """The profile from what the agent measured; None when it saw no clear period.

    `periods_us` are the iterations reported meanwhile: with enough of them their median is the
    period, and the phases keep their measured times within it.
    """
    phases = measured.get("phases") or []
    if measured.get("confidence", 0) < MIN_CONFIDENCE or not phases:
        return None
    period_us = int(measured["period_us"])
    if len(periods_us) >= CLEAN_ITERATIONS:
        period_us = int(median(periods_us))
    kept = []
    for offset_us, duration_us, rate_bps in phases:
        offset_us = int(offset_us) % period_us
        kept.append(Phase(offset_us, min(int(duration_us), period_us), int(rate_bps)))
    return TrafficProfile(period_us, tuple(kept))
