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
from rm.policies.interleave.score import random_phase, score, unmatched_score, utilisation
from rm.policies.interleave.search import (
    BUDGET,
    Scheme,
    search_block,
    search_perfect,
    search_unless_imperfect,
)
from rm.policies.interleave.stage3 import Spread, search_offline
from rm.policies.interleave.unify import Demand, Plan, unify

FEW = 3  # jobs of whom the best rotation is found quickly on any circle
WORTH = 0.7  # of what contention costs: above that classes by rank lose less (`python -m bench modes`)
LEADING = -1  # in the order of deployment: before any job


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

    def drops_imperfect(self, jobs: int) -> bool:
        """Is a scheme for this number of jobs only worth anything when it is perfect?"""
        return not (self.paper or self.willing) and self.crowd is not None and jobs > self.crowd


@dataclass(frozen=True, slots=True)
class Solution:
    """A matched block: its plan, the rotations, and whether stage 3 could widen the cushions.

    `spread` is what stage 3 found, if it was asked; its scheme is `scheme`. Scores are `fluid`, of continuous
    time, but in paper mode.
    """

    plan: Plan
    scheme: Scheme
    improvable: bool
    spread: Spread | None = None
    fluid: bool = False

    def link_score(self, link: LinkLoad) -> float:
        """In slots, as the papers have it, or else in continuous time, which is never less."""
        if not self.fluid:
            circle = Circle(self.plan, (link,))
            return score(sum(circle.excess(self.scheme.k)), link.capacity, circle.slots)
        if self.scheme.perfect:
            return 100.0
        return float(100 - 100 * self._over(link, self.scheme.k))

    def unrotated(self, link: LinkLoad) -> float:
        """The score when all iterations begin together."""
        if self.fluid:
            return float(100 - 100 * self._over(link, [0] * len(self.scheme.k)))
        circle = Circle(self.plan, (link,))
        return score(sum(circle.excess([0] * len(circle.n))), link.capacity, circle.slots)

    def _over(self, link: LinkLoad, k: Sequence[int]) -> Fraction:
        plan, phases = self.plan, [link.phases.get(job, ()) for job in self.plan.order]
        return utilisation(phases, k, plan.mul, plan.perimeter, plan.slots, link.capacity)[1]

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


def solve_equals(
    demands: Sequence[Demand], links: Sequence[LinkLoad], thresholds: Thresholds, offline: bool = False
) -> tuple[Solution | None, Sequence[Demand]]:
    """As `solve_block`; and the demands with the ranks by which that is the answer.

    Among equals any may be slowed. So in default mode, where the best ranked job as the reference gives no
    perfect scheme, the slowest of its priority is tried, with whose pace all others can keep. Classes by rank
    are what there is instead of it, and lose less than contention.
    """
    ranked = sorted(demands, key=lambda d: (d.rank, d.job))
    solution = solve_block(ranked, links, thresholds, offline)
    equals = [d for d in ranked if d.rank[0] == ranked[0].rank[0]]
    slowest = max(equals, key=lambda d: d.period)
    if thresholds.paper or slowest.period == ranked[0].period or (solution and solution.scheme.perfect):
        return solution, ranked
    leading = replace(slowest, rank=(slowest.rank[0], LEADING, slowest.rank[2]))
    others = [leading, *(d for d in ranked if d is not slowest)]
    slower = solve_block(others, links, thresholds, offline)
    if slower is None or not slower.scheme.perfect:
        return solution, ranked
    if not thresholds.willing and slower.plan.injected_share > WORTH * _random_excess(ranked, links):
        return solution, ranked
    return slower, others


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
    search = search_unless_imperfect if thresholds.drops_imperfect(len(demands)) else search_block
    scheme = search(plan, loads, thresholds.budget, thresholds.compact)
    if not (scheme and scheme.perfect) and not thresholds.paper:
        plan, scheme = _finer(plan, loads, scheme, thresholds)
    if scheme is None:
        return None
    if not scheme.perfect:
        kept = plan.exact and not plan.injects
        if thresholds.paper or thresholds.willing:
            kept = not literal.injects
        elif thresholds.drops_imperfect(len(demands)):
            kept = False
        return Solution(plan, scheme, False, fluid=not thresholds.paper) if kept else None
    several = len(demands) > 2 or any(len(p) > 1 for load in loads for p in load.phases.values())
    widen = (several or thresholds.widest) and not thresholds.compact
    spread = None
    if widen and offline:
        metric = thresholds.metric or ("midpoint" if thresholds.paper else "gap")
        over = "middles" if thresholds.paper else "all"
        spread = search_offline(plan, loads, metric, over, thresholds.budget)
        scheme = spread.scheme if spread is not None else scheme
    return Solution(plan, scheme, widen and not offline, spread, not thresholds.paper)


def _finer(
    plan: Plan, loads: Sequence[LinkLoad], coarse: Scheme | None, thresholds: Thresholds
) -> tuple[Plan, Scheme | None]:
    """On a circle of as many slots as there may be, where a slot that a phase only touches is short: what
    fits in time but not in coarse slots is perfect, and a few jobs get a better rotation than before."""
    fine = replace(plan, slots=thresholds.d_max // plan.slots * plan.slots)
    if fine.slots == plan.slots:
        return plan, coarse
    scheme = None
    if all(_fits(plan, load) for load in loads):
        scheme = search_perfect(fine, loads, thresholds.budget, thresholds.compact)
    if scheme is None and len(plan.order) <= FEW:
        search = search_unless_imperfect if coarse is None else search_block
        scheme = search(fine, loads, thresholds.budget, thresholds.compact)
    if scheme is None or (coarse is not None and scheme.score < coarse.score):
        return plan, coarse
    return fine, scheme


def _fits(plan: Plan, load: LinkLoad) -> bool:
    """Is there room for all that the jobs send in one circle?"""
    sent = sum(
        b * duration * rate
        for job, b in zip(plan.order, plan.mul, strict=True)
        for _, duration, rate in load.phases.get(job, ())
    )
    return sent <= load.capacity * plan.perimeter


def _random_excess(demands: Sequence[Demand], loads: Sequence[LinkLoad]) -> float:
    """Share of the worst link's capacity that is exceeded without any management (R10)."""
    return max(
        random_phase([(d.period, load.phases.get(d.job, ())) for d in demands], load.capacity)[1]
        for load in loads
    )


def unmatched_link_score(demands: Sequence[Demand], link: LinkLoad) -> float:
    """Score of a link whose jobs have no rotation (R10)."""
    there = [(d.period, link.phases[d.job]) for d in demands if link.phases.get(d.job)]
    return unmatched_score(there, link.capacity)
