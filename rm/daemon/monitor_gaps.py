"""When a throughput test between two hosts disturbs no job: asked of the leader, for the next seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rm.core.cycle import Cycle
from rm.core.idle import Beat, Span, beat_of, bursts, idle_windows
from rm.core.job import JobState
from rm.core.ports import Clock
from rm.core.snapshot import PlacedJob
from rm.core.state import ClusterState
from rm.daemon.leader import Leader

LEAD_US = 400_000  # until both hosts have been told
HORIZON_US = 3_000_000  # further ahead nobody knows
GUARD_US = 3_000
DRAIN_US = 2_000  # of full link rate, that may be under way when a burst ends
LEAST_US = 10_000  # a shorter burst of TCP tells nothing
RECENT = 20  # iterations looked at
SILENT_PERIODS = 5  # a job that has not reported for so long is not where it was
SILENT_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job whose traffic shares a link with the test. `held_us`: its period, if it waits for its slot."""

    placed: PlacedJob
    running: bool
    held_us: int | None


class RotationGaps:
    """`recent` gives a job's newest iterations, (begin by the leader's clock, duration), oldest first."""

    def __init__(self, leader: Leader, recent: Callable[[int], Sequence[Span]], clock: Clock) -> None:
        self._leader = leader
        self._recent = recent
        self._clock = clock

    def windows(self, a: str, b: str, duration_us: int) -> Sequence[Span] | None:
        """When to send, as (begin, length) by the leader's clock. None: at any time, for no job
        communicates there; empty: the jobs leave no gap, or not even they know when they will."""
        near: list[Neighbour] = self._leader.ask(lambda c, _: neighbours(c, a, b)).result(10)
        if not near:
            return None
        beats = [self._beat(n) for n in near]
        if any(beat is None for beat in beats):
            return ()
        from_us = self._clock.now_us() + LEAD_US
        gaps = idle_windows(
            [beat for beat in beats if beat is not None],
            from_us,
            from_us + HORIZON_US,
            LEAST_US + DRAIN_US,
            GUARD_US,
        )
        return bursts([(begin, end - DRAIN_US) for begin, end in gaps], duration_us, LEAST_US, duration_us)

    def _beat(self, near: Neighbour) -> Beat | None:
        traffic = near.placed.traffic
        if traffic is None or not near.running:
            return None
        seen = list(self._recent(near.placed.job))[-RECENT:]
        if seen and self._clock.now_us() - sum(seen[-1]) > SILENT_US + SILENT_PERIODS * traffic.period_us:
            return None
        return beat_of(traffic, seen, near.held_us)


def neighbours(cycle: Cycle, a: str, b: str) -> list[Neighbour]:
    """The jobs that communicate over the links of either host, or over uplinks between the two."""
    state = cycle.state
    uplinks = set(state.fabric.crossings((a, b))) if state.fabric is not None else set()
    held = {s.job: s.period_us for s in state.alignment.schedules if s.gate}
    return [
        Neighbour(p, state.jobs[p.job].state is JobState.RUNNING, held.get(p.job))
        for p in state.placed.values()
        if not p.low_comm and len(p.placement.hosts) > 1 and _meets(state, p, {a, b}, uplinks)
    ]


def _meets(state: ClusterState, placed: PlacedJob, hosts: set[str], uplinks: set[str]) -> bool:
    if hosts & set(placed.placement.hosts):
        return True
    return state.fabric is not None and bool(uplinks & set(state.fabric.crossings(placed.placement.hosts)))
