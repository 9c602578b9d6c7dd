"""When a throughput test between two hosts disturbs no job: asked of the leader, for the next seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rm.core.jobs.state import ClusterState
from rm.core.model.job import JobState
from rm.core.model.snapshot import PlacedJob
from rm.core.monitoring.idle import Beat, Span, beat_of, bursts, idle_windows
from rm.core.ports import Clock
from rm.core.scheduling.cycle import Cycle
from rm.daemon.leading.leader import Leader

log = logging.getLogger(__name__)

LEAD_US = 100_000  # until the sending host has its order
HORIZON_US = 700_000  # further ahead is predicted anew
GUARD_US = 3_000
DRAIN_US = 6_000  # until what is under way when a burst ends has got through
LEAST_US = 10_000  # a shorter burst of TCP shows nothing
RECENT = 12  # iterations looked at
SILENT_PERIODS = 5  # a job that has not reported for so long is not where it was
SILENT_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job whose traffic shares a link with the test. `held`: it waits for its slot."""

    placed: PlacedJob
    running: bool
    held: bool


class RotationGaps:
    """`recent` gives a job's newest iterations, (begin by the leader's clock, duration), oldest first."""

    def __init__(self, leader: Leader, recent: Callable[[int], Sequence[Span]], clock: Clock) -> None:
        self._leader = leader
        self._recent = recent
        self._clock = clock

    def busy(self, a: str, b: str) -> bool:
        """Does any job communicate over the links of these hosts, or is it about to?"""
        near: list[Neighbour] = self._leader.ask(lambda c, _: neighbours(c, a, b)).result(10)
        return bool(near)

    def next(self, a: str, b: str, duration_us: int) -> Sequence[Span]:
        """When to send next, as (begin, length) by the leader's clock; empty: the jobs leave no gap, or
        not even they know when they will."""
        near: list[Neighbour] = self._leader.ask(lambda c, _: neighbours(c, a, b)).result(10)
        beats = [self._beat(n) for n in near]
        if any(beat is None for beat in beats):
            log.debug("%s to %s: no gap can be predicted from %s", a, b, beats)
            return ()
        from_us = self._clock.now_us() + LEAD_US
        gaps = idle_windows(
            [beat for beat in beats if beat is not None],
            from_us,
            from_us + HORIZON_US,
            LEAST_US + DRAIN_US,
            GUARD_US,
        )
        longest_us = max(duration_us, LEAST_US)
        found = bursts([(begin, end - DRAIN_US) for begin, end in gaps], duration_us, LEAST_US, longest_us)
        log.debug("%s to %s: bursts %s between %s", a, b, found, beats)
        return found

    def _beat(self, near: Neighbour) -> Beat | None:
        traffic = near.placed.traffic
        if traffic is None or not near.running:
            return None
        seen = list(self._recent(near.placed.job))[-RECENT:]
        if seen and self._clock.now_us() - sum(seen[-1]) > SILENT_US + SILENT_PERIODS * traffic.period_us:
            return None
        return beat_of(traffic, [begin for begin, _ in seen], near.held)


def neighbours(cycle: Cycle, a: str, b: str) -> list[Neighbour]:
    """The jobs that communicate over the links of either host, or over uplinks between the two."""
    state = cycle.state
    uplinks = set(state.fabric.crossings((a, b))) if state.fabric is not None else set()
    held = {s.job for s in state.alignment.schedules if s.gate}
    return [
        Neighbour(p, state.jobs[p.job].state is JobState.RUNNING, p.job in held)
        for p in state.placed.values()
        if not p.low_comm and len(p.placement.hosts) > 1 and _meets(state, p, {a, b}, uplinks)
    ]


def _meets(state: ClusterState, placed: PlacedJob, hosts: set[str], uplinks: set[str]) -> bool:
    if hosts & set(placed.placement.hosts):
        return True
    return state.fabric is not None and bool(uplinks & set(state.fabric.crossings(placed.placement.hosts)))
