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

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.daemon.agents import Agents
from rm.daemon.regulation.running import Running
from rm.errors import RmError
from rm.protocol.network import Profile, Profiled

log = logging.getLogger(__name__)

WATCH_US = 3_000_000
MIN_CONFIDENCE = 0.5
CLEAN_ITERATIONS = 5
# A host reports these, and aligning odd ones takes longer: no training iterates like that.
SHORTEST_US, LONGEST_US, MOST_PHASES = 1_000, 600_000_000, 64


class Inspection:
    """A queue of jobs to profile; belongs to one thread.

    Args:
        defer: runs a function in that thread, soon: answers come in the fleet's.
        done: called for each job, in that thread, with its profile or None.
    """

    def __init__(
        self,
        agents: Agents,
        defer: Callable[[Callable[[], None]], None],
        done: Callable[[Running, TrafficProfile | None], None],
    ) -> None:
        self._agents = agents
        self._defer = defer
        self._done = done
        self._waiting: deque[tuple[Running, bool, bool]] = deque()
        self._current: tuple[int, int] | None = None
        self._periods: list[int] = []

    def begin(self, running: Running, reports: bool, shared: bool) -> None:
        """Profile this job when those before it are done.

        `reports`: it reports its iterations; `shared`: other jobs communicate on its links.
        """
        name = (running.job, running.attempt)
        if name == self._current or any((w.job, w.attempt) == name for w, _, _ in self._waiting):
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
        request = Profile(
            job=running.job, attempt=running.attempt, interface=place.interface, duration_us=WATCH_US
        )
        future = self._agents.call(place.host, request, WATCH_US / 1e6 + 10)
        future.add_done_callback(lambda f: self._defer(lambda: self._ended(running, reports, shared, f)))

    def _ended(self, running: Running, reports: bool, shared: bool, future: Future[Profiled]) -> None:
        profile, periods_us = None, self._periods if reports else []
        self._current, self._periods = None, []
        try:
            profile = profile_of(future.result(), periods_us)
            if profile is not None and shared:
                profile = undisturbed(profile, running.places[0].nic_bps)
        except (RmError, TimeoutError) as error:
            log.warning("cannot profile job %d: %s", running.job, error)
        finally:  # the next job has its turn after any answer
            log.info("job %d: %s", running.job, profile or "no clear traffic profile yet")
            self._next()
            self._done(running, profile)


def profile_of(measured: Profiled, periods_us: list[int]) -> TrafficProfile | None:
    """The profile from what the agent measured; None when it saw no clear period.

    `periods_us` are the iterations reported meanwhile: with enough of them their median is the
    period, and the phases keep their measured times within it.
    """
    if measured.confidence < MIN_CONFIDENCE or not 0 < len(measured.phases) <= MOST_PHASES:
        return None
    period_us = measured.period_us
    if len(periods_us) >= CLEAN_ITERATIONS:
        period_us = int(median(periods_us))
    if not SHORTEST_US <= period_us <= LONGEST_US:
        return None
    kept = []
    for offset_us, duration_us, rate_bps in measured.phases:
        kept.append(Phase(offset_us % period_us, min(duration_us, period_us), rate_bps))
    return TrafficProfile(period_us, tuple(kept))


def undisturbed(profile: TrafficProfile, capacity_bps: int) -> TrafficProfile:
    """The profile as it would be without the others on the link.

    A phase that was measured beside other jobs is longer and slower than it need be, but its
    volume is its own: at the link's capacity it takes volume / capacity, and the period is
    shorter by what that saves. An estimate that a later inspection, made when the jobs are
    interleaved, replaces: a job that cannot fill the link looks faster here than it is. Volumes are
    kept to less than one bit per microsecond of a phase. A link of unknown capacity (0) estimates nothing.
    """
    if capacity_bps <= 0:
        return profile
    saved_us, phases = 0, []
    for phase in sorted(profile.phases, key=lambda p: p.offset_us):
        duration_us = min(phase.duration_us, -(-phase.duration_us * phase.rate_bps // capacity_bps))
        rate_bps = phase.rate_bps * phase.duration_us // max(1, duration_us)
        phases.append(Phase(phase.offset_us - saved_us, duration_us, rate_bps))
        saved_us += phase.duration_us - duration_us
    return TrafficProfile(profile.period_us - saved_us, tuple(phases))
