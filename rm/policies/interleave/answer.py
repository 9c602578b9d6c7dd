"""The answer to a question about interleaving: rotations on each link, one time-shift for each job."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rm.policies.interleave.affinity import a_cycle, bfs_shifts, components, contended, violations
from rm.policies.interleave.circle import Circle, LinkLoad
from rm.policies.interleave.component import Settled
from rm.policies.interleave.cushion import Distances
from rm.policies.interleave.problem import Problem
from rm.policies.interleave.search import BUDGET
from rm.policies.interleave.solve import Solution, Thresholds, unmatched_link_score
from rm.policies.interleave.unify import Demand, unify

G_T_US = 5000
Span = tuple[Fraction, Fraction, int]  # start and end in microseconds, bit/s


@dataclass(frozen=True, slots=True)
class LinkAnswer:
    """One link. `load` holds the jobs that demand anything of it; `contended` when all their peaks
    together are too much; `solution` None when it is not, or when the periods do not match.

    `expected` is its score with independent phases (R10), and so its score without a solution. `laggards`
    are jobs for whose iterations the circle is too short, which is why there is no solution.
    """

    name: str
    load: LinkLoad
    contended: bool
    solution: Solution | None
    expected: float
    laggards: tuple[int, ...] = ()

    @property
    def jobs(self) -> tuple[int, ...]:
        """The jobs with demand, in the order of rank where there is a circle."""
        if self.solution is None:
            return tuple(sorted(self.load.phases))
        return tuple(job for job in self.solution.plan.order if job in self.load.phases)

    @property
    def score(self) -> float:
        if not self.contended:
            return 100.0
        return self.expected if self.solution is None else self.solution.link_score(self.load)

    @property
    def unrotated(self) -> float:
        """The score when all iterations begin together."""
        if self.solution is None:
            return self.score
        return self.solution.unrotated(self.load)

    @property
    def perimeter(self) -> int | None:
        return None if self.solution is None else self.solution.plan.perimeter

    @property
    def rotations(self) -> dict[int, Fraction]:
        """Microseconds, of the link's jobs."""
        if self.solution is None:
            return {}
        return {job: self.solution.scheme.shift(job) for job in self.jobs}

    def cushion(self, metric: str = "gap") -> Fraction | None:
        """The smallest distance between contending phases in microseconds."""
        if self.solution is None:
            return None
        return Distances(self._circle(self.solution), metric).psi(self.solution.scheme.k)

    @property
    def psi_rad(self) -> float | None:
        """The smallest angle between the middles of contending phases (M eq. 9)."""
        psi = self.cushion("midpoint")
        assert psi is None or self.perimeter
        return None if psi is None else float(psi / (self.perimeter or 1)) * math.tau

    def spans(self, job: int, rotated: bool) -> list[Span]:
        """What the job sends during one circle; a phase may reach beyond its end."""
        assert self.solution is not None
        plan = self.solution.plan
        shift = self.solution.scheme.shift(job) if rotated else Fraction(0)
        starts = [shift + i * plan.period(job) for i in range(plan.mul[plan.index(job)])]
        return [
            (at + offset, at + offset + duration, rate)
            for at in starts
            for offset, duration, rate in self.load.phases[job]
        ]

    def _circle(self, solution: Solution) -> Circle:
        return Circle(solution.plan, (self.load,))


@dataclass(frozen=True, slots=True)
class Answer:
    """For all links. Times in microseconds; `shifts`, `periods` and `injected` of every job.

    `injected` is idle time per iteration, and `periods` contain it. The shifts give every link the
    rotations that were found for it (R24), but for those named in `broken`. `loop`: jobs and links
    by turns around a loop of the affinity graph; its links are solved together where a circle
    holds all their jobs. `unmatched` jobs meet others on a contended link that has no rotations.
    """

    problem: Problem
    links: tuple[LinkAnswer, ...]
    shifts: Mapping[int, Fraction]
    periods: Mapping[int, Fraction]
    injected: Mapping[int, Fraction]
    perimeter: int
    broken: tuple[str, ...]
    loop: tuple[int | str, ...] | None
    unmatched: tuple[int, ...]

    @property
    def consistent(self) -> bool:
        return not self.broken


def thresholds_for(
    problem: Problem, paper: bool = False, metric: str = "", budget: int = BUDGET
) -> Thresholds:
    return Thresholds(
        G_T_US, slots=problem.slots, paper=paper, metric=metric, budget=budget, widest=True, willing=True
    )


def answer(problem: Problem, thresholds: Thresholds, offline: bool = True) -> Answer:
    """Rotations for all contended links, and the time-shifts that follow from them.

    A loop whose jobs have no common circle is solved link by link, and may be inconsistent.
    """
    demands, links = problem.demands()
    crowded = contended(links)
    settled = Settled()
    for names, group in components({name: load.phases for name, load in crowded.items()}):
        part = {name: crowded[name] for name in names}
        high = {job for job in group if problem.jobs[job].high}
        pinned = high if len(high) < len(group) and not thresholds.paper else set()  # as the daemon does
        settled.add(part, demands, pinned, thresholds, offline)
        for name in names:
            if name not in settled.links:
                settled.add({name: crowded[name]}, demands, pinned, thresholds, offline)
    shifts, _ = bfs_shifts(settled.rotations, settled.effective, settled.ranks)
    rotations = {
        name: {job: solution.scheme.shift(job) for job in crowded[name].phases}
        for name, solution in settled.links.items()
    }
    loop = a_cycle(crowded)
    injected = dict.fromkeys(demands, Fraction(0))
    for job, solutions in settled.solved.items():
        plan = solutions[0].plan
        injected[job] = Fraction(plan.inject[plan.index(job)], plan.mul[plan.index(job)])
    without = {job for name, load in crowded.items() if name not in settled.links for job in load.phases}
    return Answer(
        problem=problem,
        links=tuple(
            LinkAnswer(
                name,
                load,
                name in crowded,
                settled.links.get(name),
                _expected(load, demands),
                _laggards(load, demands, thresholds) if name in crowded and name not in settled.links else (),
            )
            for name, load in links.items()
        ),
        shifts={job: shifts.get(job, Fraction(0)) for job in demands},
        periods={job: settled.effective.get(job, Fraction(d.period)) for job, d in demands.items()},
        injected=injected,
        perimeter=_perimeter(settled, list(demands.values()), thresholds),
        broken=tuple(dict.fromkeys(name for name, _, _ in violations(rotations, settled.effective, shifts))),
        loop=None if loop is None else tuple(loop),
        unmatched=tuple(sorted(without)),
    )


def _laggards(load: LinkLoad, demands: Mapping[int, Demand], thresholds: Thresholds) -> tuple[int, ...]:
    """The jobs of a link that cannot keep the pace of its first in rank."""
    plan = unify(
        (demands[job] for job in load.phases),
        thresholds.g_t,
        thresholds.e_t,
        thresholds.mul_max,
        thresholds.slots,
        thresholds.min_slots,
        thresholds.d_max,
    )
    return plan.laggards if plan is not None and not thresholds.paper else ()


def _expected(load: LinkLoad, demands: Mapping[int, Demand]) -> float:
    return unmatched_link_score([demands[job] for job in load.phases], load)


def _perimeter(settled: Settled, demands: Sequence[Demand], thresholds: Thresholds) -> int:
    """The longest circle; where none is needed the jobs' common one, or else the longest period."""
    circles = [solution.plan.perimeter for solution in settled.links.values()]
    if not circles:
        common = unify(demands, thresholds.g_t, thresholds.e_t)
        circles = [max(d.period for d in demands) if common is None else common.perimeter]
    return max(circles)


def sums(spans: Iterable[Span], perimeter: int) -> list[Span]:
    """The total demand around the circle, from step to step; stretches without any are left out."""
    around = Fraction(perimeter)
    steps: dict[Fraction, int] = {Fraction(0): 0, around: 0}
    for start, end, rate in spans:
        at = start % around
        for left, right in ((at, min(at + end - start, around)), (Fraction(0), at + end - start - around)):
            if left < right:
                steps[left] = steps.get(left, 0) + rate
                steps[right] = steps.get(right, 0) - rate
    found: list[Span] = []
    level = 0
    edges = sorted(steps)
    for left, right in itertools.pairwise(edges):
        level += steps[left]
        if level:
            found.append((left, right, level))
    return found
