"""Inspection: measure a running job's traffic profile again, one job of a host at a time.

Metronome, Sec. III-C: on a change of the traffic pattern, or after frequent readjustments, the
relevant jobs are inspected in turn. The phases come from the job's own byte counters on its
first host; where the job reports iterations, the period is theirs, which is more exact.

A job is watched for some of its iterations: few of them give a wrong profile where one of them is late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from statistics import median

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.daemon.agents import Agents
from rm.daemon.regulation.running import Running
from rm.errors import RmError
from rm.protocol.codes import Code, code_of
from rm.protocol.network import Profile, Profiled

log = logging.getLogger(__name__)

LEAST_WATCH_US, MOST_WATCH_US = 3_000_000, 24_000_000
WATCHED = 8  # iterations
RAN = 4  # times as long as it is watched a job has run whose iterations nobody knows
MIN_CONFIDENCE = 0.5
CLEAN_ITERATIONS = 5
# A host reports these, and aligning odd ones takes longer: no training iterates like that.
SHORTEST_US, LONGEST_US, MOST_PHASES = 1_000, 600_000_000, 64


@dataclass(slots=True)
class _Wanted:
    running: Running
    reports: bool
    watch_us: int
    shared: bool = False  # when it began to be watched
    periods_us: list[int] = field(default_factory=list)  # of its iterations meanwhile

    @property
    def name(self) -> tuple[int, int]:
        return self.running.job, self.running.attempt

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(place.host for place in self.running.places)


class Inspection:
    """A queue of jobs to profile; belongs to one thread.

    Args:
        defer: runs a function in that thread, soon: answers come in the fleet's.
        shared: whether other jobs communicate on the job's links now.
        done: called for each job, in that thread, with its profile or None.
    """

    def __init__(
        self,
        agents: Agents,
        defer: Callable[[Callable[[], None]], None],
        shared: Callable[[Running], bool],
        done: Callable[[Running, TrafficProfile | None], None],
    ) -> None:
        self._agents = agents
        self._defer = defer
        self._shared = shared
        self._done = done
        self._waiting: list[_Wanted] = []
        self._watched: dict[tuple[int, int], _Wanted] = {}

    def begin(self, running: Running, reports: bool, watch_us: int = LEAST_WATCH_US) -> None:
        """Profile this job when those of its hosts that were asked for earlier are done.

        `reports`: it reports its iterations; `watch_us`: for how long.
        """
        name = (running.job, running.attempt)
        if name in self._watched or any(one.name == name for one in self._waiting):
            return
        self._waiting.append(_Wanted(running, reports, watch_us))
        self._next()

    def heard(self, job: int, attempt: int, net_us: int, comm_us: int | None) -> None:
        """An iteration of some job: `net_us` is its duration without waiting."""
        if (wanted := self._watched.get((job, attempt))) is not None:
            wanted.periods_us.append(net_us)

    def _next(self) -> None:
        taken = {host for wanted in self._watched.values() for host in wanted.hosts}
        for wanted in [*self._waiting]:
            if taken.isdisjoint(wanted.hosts):
                self._waiting.remove(wanted)
                self._watch(wanted)
            taken.update(wanted.hosts)

    def _watch(self, wanted: _Wanted) -> None:
        running = wanted.running
        self._watched[wanted.name] = wanted
        wanted.shared = self._shared(running)
        place = running.places[0]
        request = Profile(
            job=running.job, attempt=running.attempt, interface=place.interface, duration_us=wanted.watch_us
        )
        future = self._agents.call(place.host, request, wanted.watch_us / 1e6 + 10)
        future.add_done_callback(lambda f: self._defer(lambda: self._ended(wanted, f)))

    def _ended(self, wanted: _Wanted, future: Future[Profiled]) -> None:
        running, profile = wanted.running, None
        del self._watched[wanted.name]
        try:
            profile = profile_of(future.result(), wanted.periods_us if wanted.reports else [])
            if profile is not None and (wanted.shared or self._shared(running)):
                profile = undisturbed(profile, running.places[0].nic_bps)
        except (RmError, TimeoutError) as error:
            if code_of(error) is not Code.NO_SUCH_ATTEMPT:  # it ended while it was watched
                log.warning("cannot profile job %d: %s", running.job, error)
        finally:  # the next job has its turn after any answer
            log.info("job %d: %s", running.job, profile or "no clear traffic profile yet")
            self._next()
            self._done(running, profile)


def watch_us(iteration_us: int | None, ran_us: int) -> int:
    """For how long to watch a job whose iterations take about `iteration_us` (None: not known) and which
    has run for `ran_us`: the longer it has shown no period, the longer its period may be."""
    wanted_us = ran_us // RAN if iteration_us is None else WATCHED * iteration_us
    return min(MOST_WATCH_US, max(LEAST_WATCH_US, wanted_us))


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
