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
        self._waiting: deque[tuple[Running, bool, bool]] = deque()
        self._current: tuple[int, int] | None = None
        self._periods: list[int] = []

    @property
    def busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def begin(self, running: Running, reports: bool, shared: bool) -> None:
        """Profile this job when those before it are done.

        `reports`: it tells its iterations; `shared`: other jobs communicate on its links.
        """
        waiting = any(w.job == running.job for w, _, _ in self._waiting)
        if waiting or self._current == (running.job, running.attempt):
            return
        self._waiting.append((running, reports, shared))
        self._next()

    def heard(self, job: int, attempt: int, net_us: int, comm_us: int | None) -> None:
        """An iteration of some job: `net_us` is its duration without waiting."""
        if self._current == (job, attempt):
            self._periods.append(net_us)

    def _next(self) -> None:
        if self._current is not None or not self._waiting:
            return
        running, reports, shared = self._waiting.popleft()
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
        future.add_done_callback(lambda f: self._ended(running, reports, shared, f))

    def _ended(self, running: Running, reports: bool, shared: bool, future: Future[dict[str, Any]]) -> None:
        error = future.exception()
        profile = None
        if error is not None:
            log.warning("cannot profile job %d: %s", running.job, error)
        else:
            profile = profile_of(future.result(), self._periods if reports else [])
            if profile is not None and shared:
                profile = undisturbed(profile, running.places[0].nic_bps)
        log.info("job %d: %s", running.job, profile or "no clear traffic profile yet")
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


def undisturbed(profile: TrafficProfile, capacity_bps: int) -> TrafficProfile:
    """The profile as it would be without the others on the link.

    A phase that was measured beside other jobs is longer and slower than it need be, but its
    volume is its own: at the link's capacity it takes volume / capacity, and the period is
    shorter by what that saves. An estimate that a later inspection, made when the jobs are
    interleaved, replaces: a job that cannot fill the link looks faster here than it is.
    """
    saved_us, phases = 0, []
    for phase in sorted(profile.phases, key=lambda p: p.offset_us):
        duration_us = min(phase.duration_us, -(-phase.duration_us * phase.rate_bps // capacity_bps))
        rate_bps = phase.rate_bps * phase.duration_us // max(1, duration_us)
        phases.append(Phase(phase.offset_us - saved_us, duration_us, rate_bps))
        saved_us += phase.duration_us - duration_us
    return TrafficProfile(profile.period_us - saved_us, tuple(phases))
