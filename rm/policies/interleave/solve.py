"""One block from demands to rotations: unify, inject or not, search, and when to let it be.

Default mode: residual idle time is injected once a scheme is committed, and injection must cost
less than the contention it removes. Paper mode: Metronome to the letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from rm.policies.interleave.circle import Circle, LinkLoad
from rm.policies.interleave.cushion import Distances
from rm.policies.interleave.profile import Phases
from rm.policies.interleave.score import random_phase, score, unmatched_score
from rm.policies.interleave.search import BUDGET, Scheme, search_block
from rm.policies.interleave.stage3 import Spread, search_offline
from rm.policies.interleave.unify import Demand, Plan, unify


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Metronome's thresholds, times in ticks; see `unify`. `paper` switches to the letter, `compact`
    leaves no cushion between phases.

    Stage 3 measures cushions by `metric` ("" = by the mode: "gap", paper "midpoint") and leaves two
    jobs of one phase each in the middle that is within a slot of the best, unless `widest`. With
    `willing`, idle time is not weighed against the contention that it removes, and jobs whose periods
    are within G_T keep the best rotation there is, though it is not perfect. More jobs than `crowd` in a
    block keep none that is not perfect: its pauses cost them more than they bring (None = any number does).
    """

    g_t: int
    e_t: float = 0.10
    mul_max: int = 24
    slots: int = 72
    min_slots: int = 12
    d_max: int = 3600
    paper: bool = False
    budget: int = BUDGET
    compact: bool = False
    metric: str = ""
    widest: bool = False
    willing: bool = False
    crowd: int | None = None


@dataclass(frozen=True, slots=True)
class Solution:
    """A matched block: its plan, the rotations, and whether stage 3 could widen the cushions.

    `spread` is what stage 3 found, if it was asked; its scheme is `scheme`.
    """

    plan: Plan
    scheme: Scheme
    improvable: bool
    spread: Spread | None = None

    def link_score(self, link: LinkLoad) -> float:
        circle = Circle(self.plan, (link,))
        return score(sum(circle.excess(self.scheme.k)), link.capacity, circle.slots)

    def gap(self, link: LinkLoad, job: int | None = None) -> Fraction | None:
        """Smallest end-to-start distance of contending phases on a link, in ticks.

        With `job`, only of pairs with that job.
        """
        distances = Distances(Circle(self.plan, (link,)))
        if job is None:
            return distances.psi(self.scheme.k)
        return distances.psi_of(self.plan.index(job), self.scheme.k)


def solve_block(
    demands: Sequence[Demand], links: Sequence[LinkLoad], thresholds: Thresholds, offline: bool = False
) -> Solution | None:
    """Rotations for jobs that share one link or a block of links; None = unmatched.

    Unmatched: the periods do not match, or no perfect scheme is worth its injected idle time
    (commit rule). `offline` looks for the largest cushion (R16). Equal questions are answered
    from memory: the answer depends on nothing else.
    """
    ranked = sorted(demands, key=lambda d: (d.rank, d.job))
    jobs = [d.job for d in ranked]
    answer = _solve(
        tuple((d.period, d.pinned) for d in ranked),
        tuple((link.capacity, tuple(link.phases.get(j, ()) for j in jobs)) for link in links),
        thresholds,
        offline,
    )
    if answer is None:
        return None
    return replace(
        answer,
        plan=replace(answer.plan, order=tuple(jobs)),
        scheme=replace(answer.scheme, jobs=tuple(jobs)),
    )


@lru_cache(maxsize=4096)
def _solve(
    periods: tuple[tuple[int, bool], ...],
    links: tuple[tuple[int, tuple[Phases, ...]], ...],
    thresholds: Thresholds,
    offline: bool,
) -> Solution | None:
    demands = [Demand(i, t, (), (0, i, ""), pinned) for i, (t, pinned) in enumerate(periods)]
    loads = tuple(LinkLoad(b, dict(enumerate(phases))) for b, phases in links)
    literal = unify(
        demands,
        thresholds.g_t,
        thresholds.e_t,
        thresholds.mul_max,
        thresholds.slots,
        thresholds.min_slots,
        thresholds.d_max,
    )
    if literal is None:
        return None
    plan = literal if thresholds.paper else literal.settled()
    if plan is None:
        return None
    weighed = plan.injects and not thresholds.paper and not thresholds.willing
    if weighed and plan.injected_share >= _random_excess(demands, loads):
        return None
    scheme = search_block(plan, loads, thresholds.budget, thresholds.compact)
    if not scheme.perfect:
        kept = plan.exact and not plan.injects
        if thresholds.paper or thresholds.willing:
            kept = not literal.injects
        elif thresholds.crowd is not None and len(demands) > thresholds.crowd:
            kept = False
        return Solution(plan, scheme, False) if kept else None
    several = len(demands) > 2 or any(len(p) > 1 for load in loads for p in load.phases.values())
    widen = (several or thresholds.widest) and not thresholds.compact
    spread = None
    if widen and offline:
        metric = thresholds.metric or ("midpoint" if thresholds.paper else "gap")
        over = "middles" if thresholds.paper else "all"
        spread = search_offline(plan, loads, metric, over, thresholds.budget)
        scheme = spread.scheme if spread is not None else scheme
    return Solution(plan, scheme, widen and not offline, spread)


def _random_excess(demands: Sequence[Demand], loads: Sequence[LinkLoad]) -> float:
    """Share of the worst link's capacity that is exceeded without any management (R10)."""
    return max(
        random_phase([(d.period, load.phases[d.job]) for d in demands], load.capacity)[1] for load in loads
    )


def unmatched_link_score(demands: Sequence[Demand], link: LinkLoad) -> float:
    """Score of a link whose jobs have no rotation (R10)."""
    there = [(d.period, link.phases[d.job]) for d in demands if link.phases.get(d.job)]
    return unmatched_score(there, link.capacity)
