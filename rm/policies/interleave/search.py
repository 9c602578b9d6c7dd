"""Searching rotations: the first perfect interval, else the least contention (R14, R15, R17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rm.policies.interleave.circle import Circle, LinkLoad
from rm.policies.interleave.feasible import Feasibility, OutOfSteps, Steps, middle_of_first_run
from rm.policies.interleave.leftmost import Fits, Leftmost
from rm.policies.interleave.overload import LeastExcess
from rm.policies.interleave.packing import packing_for
from rm.policies.interleave.profile import Phases
from rm.policies.interleave.score import score
from rm.policies.interleave.unify import Plan

BUDGET = 20_000
"""Search steps of one call; a step costs about 10 microseconds."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Rotations of the jobs of a plan; every tuple runs parallel to `jobs` (rank order).

    `k` in slots of the circle, `excess` in bandwidth-slots over all links of the block. No rotation
    scores above `bound`; `exact` is False when the budget ended before this one was known to reach it.
    """

    jobs: tuple[int, ...]
    k: tuple[int, ...]
    slots: int
    perimeter: int
    mul: tuple[int, ...]
    excess: int
    score: float
    exact: bool
    bound: float

    @property
    def perfect(self) -> bool:
        return self.excess == 0

    @property
    def gap(self) -> float:
        """What the score may be short of the best one's."""
        return self.bound - self.score

    def rotation(self, job: int) -> int:
        return self.k[self.jobs.index(job)]

    def shift(self, job: int) -> Fraction:
        """Time-shift k/D*T in ticks."""
        return Fraction(self.rotation(job) * self.perimeter, self.slots)


def search_online(plan: Plan, phases: Mapping[int, Phases], capacity: int, budget: int = BUDGET) -> Scheme:
    """The middle of the first perfect interval on one link, else the least excess.

    Args:
        phases: canonical phases per job of the plan; a job without any is left at 0.
        capacity: of the link, in the phases' unit of bandwidth.
        budget: steps after which the best scheme found so far is returned (`exact` False).
    """
    return search_block(plan, (LinkLoad(capacity, phases),), budget)


def search_block(
    plan: Plan, links: Sequence[LinkLoad], budget: int = BUDGET, compact: bool = False
) -> Scheme:
    """As search_online, for several links that share jobs, solved jointly (R17).

    `compact` takes the first perfect rotation instead of a middle: phases then follow each other
    without a cushion (Metronome's ablation of stage 3, Sec. IV-C).
    """
    circle = Circle(plan, links)
    decided = True
    try:
        scheme = _perfect(circle, budget, compact)
    except OutOfSteps:
        scheme, decided = None, False
    if scheme is not None:
        return scheme
    return _least_excess(circle, budget, decided)


def search_unless_imperfect(
    plan: Plan, links: Sequence[LinkLoad], budget: int = BUDGET, compact: bool = False
) -> Scheme | None:
    """As `search_block`; None, without a search for the best of them, where no scheme is perfect for
    certain."""
    circle = Circle(plan, links)
    try:
        return _perfect(circle, budget, compact)
    except OutOfSteps:
        return _least_excess(circle, budget, decided=False)


def _least_excess(circle: Circle, budget: int, decided: bool) -> Scheme:
    """`decided`: no scheme is perfect."""
    overload = LeastExcess(circle)
    k, excess, bound = overload.search(Steps(budget), Steps(budget // 2))
    return scheme_of(circle, k, max(bound, overload.curves.unit) if decided else bound, excess)


def search_perfect(
    plan: Plan, links: Sequence[LinkLoad], budget: int = BUDGET, compact: bool = False
) -> Scheme | None:
    """A perfect scheme as `search_block` finds it; None where there is none, or none was found in time."""
    try:
        return _perfect(Circle(plan, links), budget, compact)
    except OutOfSteps:
        return None


def _perfect(circle: Circle, budget: int, compact: bool) -> Scheme | None:
    leftmost = Leftmost(Fits(Feasibility(circle)), packing=packing_for(circle))
    found = leftmost.first(Steps(budget))
    if found is None:
        return None
    prefix, allowed = found
    first = (allowed & -allowed).bit_length() - 1
    last = first if compact else middle_of_first_run(allowed, circle.n[-1])
    last = last if len(circle.n) > 1 else 0
    return scheme_of(circle, [*prefix, last], 0)


def scheme_of(circle: Circle, k: Sequence[int], bound: int, excess: int | None = None) -> Scheme:
    """A scheme from rotations; `bound` is a lower bound of the excess of any rotation."""
    over = sum(circle.excess(k)) if excess is None else excess
    total = sum(circle.capacity)
    return Scheme(
        jobs=circle.jobs,
        k=tuple(k),
        slots=circle.slots,
        perimeter=circle.perimeter,
        mul=circle.mul,
        excess=over,
        score=score(over, total, circle.slots),
        exact=bound == over,
        bound=score(bound, total, circle.slots),
    )
