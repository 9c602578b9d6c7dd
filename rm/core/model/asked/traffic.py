"""Traffic profiles: what a job puts on its links during one iteration.

Source: Metronome (t, d, r) triples, Sec. II-B; CASSINI's geometric abstraction, Sec. 3.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """One communication phase of an iteration.

    `offset_us` counts from the iteration origin (what the job's reports time-stamp);
    `rate_bps` is the demand while the phase lasts.
    """

    offset_us: int
    duration_us: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class TrafficProfile:
    """Periodic demand of one job: `period_us` > 0 and phases in any order.

    The canonical form (wrap-around phases split, overlaps summed, neighbours of equal rate
    merged) is made by `rm.policies.interleave.profile.canonical`.
    """

    period_us: int
    phases: tuple[Phase, ...]

    @property
    def peak_bps(self) -> int:
        return max((p.rate_bps for p in self.phases), default=0)

    @property
    def comm_us(self) -> int:
        """Communication time in one period, microseconds (phases taken as disjoint)."""
        return sum(p.duration_us for p in self.phases)

    @property
    def duty_cycle(self) -> float:
        return self.comm_us / self.period_us


def on_off(period_us: int, duty_cycle: float, rate_bps: int) -> TrafficProfile:
    """Metronome's triple (t, d, r): one phase at offset 0 lasting ceil(t*d) (R2)."""
    exact = period_us * duty_cycle
    duration = int(exact) if exact == int(exact) else int(exact) + 1
    return TrafficProfile(period_us, (Phase(0, min(duration, period_us), rate_bps),))
