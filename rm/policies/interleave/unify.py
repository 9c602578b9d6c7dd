"""A common period for jobs that share links: multiples, averaging, injected idle time.

Source: Metronome Sec. III-B (thresholds G_T and E_T), resolved as R3, R4 and R5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from rm.policies.interleave.profile import Phases

Rank = tuple[int, int, str]
KEPT = Fraction(1, 100)  # of a span


@dataclass(frozen=True, slots=True)
class Demand:
    """One job as the circle sees it: period and canonical phases in ticks, and its rank.

    `pinned` jobs keep their period: it is already in use on another contended link.
    """

    job: int
    period: int
    phases: Phases
    rank: Rank
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs in rank order on one circle; every tuple runs parallel to `order`.

    `perimeter` T in ticks, `slots` D, `mul` iterations per circle, `inject` idle ticks per
    circle. `base` are the jobs' own periods and `reference_span` is T0 = a * t_ref.
    """

    order: tuple[int, ...]
    base: tuple[int, ...]
    perimeter: int
    slots: int
    mul: tuple[int, ...]
    inject: tuple[int, ...]
    kinds: tuple[str, ...]  # ref, exact, averaged, inject
    reference_span: int
    pinned: tuple[bool, ...]

    def index(self, job: int) -> int:
        return self.order.index(job)

    def period(self, job: int) -> Fraction:
        """Effective period T/mul: the job's iteration time, injected idle time included."""
        return Fraction(self.perimeter, self.mul[self.index(job)])

    @property
    def injects(self) -> bool:
        return any(self.inject)

    @property
    def injected_share(self) -> Fraction:
        """How much the jobs are slowed by idle time, as a sum of shares of their periods."""
        parts = zip(self.inject, self.mul, self.base, strict=True)
        return sum((Fraction(d, b * t) for d, b, t in parts), Fraction(0))

    @property
    def exact(self) -> bool:
        """True when no job drifts: each keeps to a multiple of the reference's period."""
        spans = zip(self.base, self.mul, self.inject, strict=True)
        return self.perimeter == self.reference_span and all(
            b * t + d == self.reference_span for t, b, d in spans
        )

    @property
    def laggards(self) -> tuple[int, ...]:
        """The jobs that cannot keep the reference's pace: their iterations take longer by more than KEPT."""
        longest = self.reference_span * (1 + KEPT)
        parts = zip(self.order, self.mul, self.base, strict=True)
        return tuple(job for job, b, t in parts if b * t > longest)

    def settled(self) -> Plan | None:
        """The residual rule: averaged jobs too are lengthened to the reference's multiple, or None where one
        is longer than that and cannot keep it.

        Averaged periods drift against each other by their difference in every circle; the reference cannot
        be slowed, so the circle takes its span. Pinned jobs stay as they are, and so does what is longer by
        KEPT at most, which is the noise of a measured period.
        """
        if self.laggards:
            return None
        span = self.reference_span
        spans = [b * t for b, t in zip(self.mul, self.base, strict=True)]
        inject = tuple(
            d if pinned or i == 0 else max(d, span - own)
            for i, (d, pinned, own) in enumerate(zip(self.inject, self.pinned, spans, strict=True))
        )
        return replace(self, perimeter=span, inject=inject)


def rank_key(priority: int, sequence: int, name: str) -> Rank:
    """Sorts by priority (highest first), then order of deployment, then name (R3)."""
    return (-priority, sequence, name)


def unify(
    demands: Iterable[Demand],
    g_t: int = 5,
    e_t: Fraction | float = Fraction(1, 10),
    mul_max: int = 24,
    slots: int = 72,
    min_slots: int = 12,
    d_max: int = 3600,
) -> Plan | None:
    """The smallest common circle of the jobs, or None when their periods do not match.

    Args:
        g_t: gap in ticks within which multiples count as equal (G_T).
        e_t: largest injected idle time as a share of the job's period (E_T).
        slots, min_slots, d_max: preferred and largest number of slots on the circle, and the
            least number of slots of one iteration.
    """
    jobs = sorted(demands, key=lambda d: (d.rank, d.job))
    if not jobs:
        raise ValueError("unify needs at least one demand")
    share = Fraction(str(e_t)) if isinstance(e_t, float) else Fraction(e_t)
    for a in range(1, mul_max + 1):
        plan = _try_multiple(jobs, a, g_t, share, mul_max, slots, min_slots, d_max)
        if plan is not None:
            return plan
    return None


def _try_multiple(
    jobs: Sequence[Demand],
    a: int,
    g_t: int,
    share: Fraction,
    mul_max: int,
    slots: int,
    min_slots: int,
    d_max: int,
) -> Plan | None:
    span = a * jobs[0].period
    mul, lengths, inject, kinds = [a], [span], [0], ["ref"]

    def may_inject(job: Demand, b: int) -> bool:
        return span - b * job.period < share * b * job.period and not job.pinned

    for job in jobs[1:]:
        b = (span + g_t) // job.period
        if b == 0 or b > mul_max:
            return None
        missing = span - b * job.period
        if missing > g_t:
            if not may_inject(job, b):
                return None
            lengths.append(span)
            inject.append(missing)
            kinds.append("inject")
        else:
            lengths.append(b * job.period)
            inject.append(0)
            kinds.append("averaged" if missing else "exact")
        mul.append(b)
    longest = max(lengths)
    for i in range(1, len(jobs)):  # any two multiples must be within G_T, not only to the reference
        missing = span - lengths[i]
        if missing > 0 and longest - lengths[i] > g_t:
            if not may_inject(jobs[i], mul[i]):
                return None
            lengths[i], inject[i], kinds[i] = span, missing, "inject"
    common = math.lcm(*mul)
    circle = common * -(-max(slots, min_slots * max(mul)) // common)
    if circle > d_max:
        return None
    return Plan(
        order=tuple(j.job for j in jobs),
        base=tuple(j.period for j in jobs),
        perimeter=(2 * sum(lengths) + len(lengths)) // (2 * len(lengths)),
        slots=circle,
        mul=tuple(mul),
        inject=tuple(inject),
        kinds=tuple(kinds),
        reference_span=span,
        pinned=tuple(j.pinned for j in jobs),
    )
