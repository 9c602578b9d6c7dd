"""The cushion between communication phases, and the rotations that make it largest (stage 3).

Psi is the least distance between contending phases: `gap` from end to start, or `midpoint`
between the phases' middles as in Metronome's eq. 9 (R11, R12). Distances are kept exact in
units of 1/(2*slots) tick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rm.policies.interleave.circle import Circle, LinkLoad, Vector
from rm.policies.interleave.feasible import Feasibility, OutOfSteps, Steps, circular_runs, run_middle
from rm.policies.interleave.packing import packing_for
from rm.policies.interleave.search import BUDGET, Scheme, scheme_of
from rm.policies.interleave.unify import Plan

METRICS = ("gap", "midpoint")


@dataclass(frozen=True, slots=True)
class Spread:
    """A perfect scheme and its Psi in ticks; `psi` None when no phases contend."""

    scheme: Scheme
    psi: Fraction | None
    exact: bool


class Distances:
    """For each pair of jobs, Psi of the pair as a function of their relative rotation.

    Phases of different jobs contend when their bandwidths together exceed the capacity (or
    reach it, with `at_capacity`); when no pair does but all peaks together do, every pair
    counts; phases of one job never contend (R11).
    """

    def __init__(self, circle: Circle, metric: str = "gap", at_capacity: bool = False) -> None:
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {METRICS}, not {metric!r}")
        self.circle = circle
        self.gap = metric == "gap"
        self.pairs: dict[tuple[int, int], Vector] = {}
        for link in circle.links:
            self._add_link(link, at_capacity)

    def psi(self, k: Sequence[int]) -> Fraction | None:
        """Psi in ticks of the scheme in which job j is rotated by k[j] slots."""
        found = [int(d[(k[b] - k[a]) % len(d)]) for (a, b), d in self.pairs.items()]
        return self.ticks(min(found)) if found else None

    def psi_of(self, j: int, k: Sequence[int]) -> Fraction | None:
        """Psi over the pairs of one job only."""
        found = [int(d[(k[b] - k[a]) % len(d)]) for (a, b), d in self.pairs.items() if j in (a, b)]
        return self.ticks(min(found)) if found else None

    def ticks(self, value: int) -> Fraction:
        return Fraction(value, 2 * self.circle.slots)

    def masks(self, least: int) -> dict[tuple[int, int], int]:
        """Rotations of the later job of each pair, at 0 of the earlier, with distance >= least."""
        result = {}
        for (a, b), distance in self.pairs.items():
            packed = np.packbits(distance >= least, bitorder="little").tobytes()
            repeat = self.circle.n[b] // len(distance)
            bits = int.from_bytes(packed, "little")
            result[a, b] = bits * sum(1 << (i * len(distance)) for i in range(repeat))
        return result

    def _add_link(self, link: LinkLoad, at_capacity: bool) -> None:
        jobs = [(j, link.phases.get(job, ())) for j, job in enumerate(self.circle.jobs)]
        pairs = [
            (a, b, p, q)
            for i, (a, mine) in enumerate(jobs)
            for b, theirs in jobs[i + 1 :]
            for p in mine
            for q in theirs
        ]
        limit = link.capacity - (1 if at_capacity else 0)
        contending = [pair for pair in pairs if pair[2][2] + pair[3][2] > limit]
        if not contending and sum(max((p[2] for p in mine), default=0) for _, mine in jobs) > limit:
            contending = pairs
        for a, b, p, q in contending:
            distance = self._distance(a, b, p, q)
            old = self.pairs.get((a, b))
            self.pairs[a, b] = distance if old is None else np.minimum(old, distance)

    def _distance(self, a: int, b: int, p: tuple[int, int, int], q: tuple[int, int, int]) -> Vector:
        slots, perimeter = self.circle.slots, self.circle.perimeter
        relative = slots // math.lcm(self.circle.mul[a], self.circle.mul[b])
        around = 2 * perimeter * relative  # every copy of the pair folds onto this length
        apart = slots * ((2 * q[0] + q[1]) - (2 * p[0] + p[1]))
        x = (apart + 2 * perimeter * np.arange(relative, dtype=np.int64)) % around
        distance: Vector = np.minimum(x, around - x)
        return distance - slots * (p[1] + q[1]) if self.gap else distance


def search_offline(
    plan: Plan,
    links: Sequence[LinkLoad],
    metric: str = "gap",
    over: str = "all",
    budget: int = BUDGET,
) -> Spread | None:
    """The perfect scheme of the largest Psi, lexicographically first; None when none is perfect.

    Args:
        metric: "gap" (default) or "midpoint" (Metronome's eq. 9).
        over: "all" perfect schemes, or only the "middles" of the last job's perfect runs, as
            Metronome's Sec. III-C has it (R16).
        budget: search steps; when they end first, the best found is returned, not `exact`.
            None then also means "not decided".
    """
    circle = Circle(plan, links)
    feasibility, distances, steps = Feasibility(circle), Distances(circle, metric), Steps(budget)
    best, value, exact = _largest(feasibility, distances, steps)
    if best is None:
        return None
    if over == "middles" and len(circle.n) > 1:
        middles = _Middles(feasibility, distances, Steps(budget), value if exact else None)
        try:
            middles.search()
        except OutOfSteps:
            exact = False
        best = middles.best or best
    return Spread(scheme_of(circle, best, 0), distances.psi(best), exact)


def _largest(
    feasibility: Feasibility, distances: Distances, steps: Steps
) -> tuple[list[int] | None, int, bool]:
    """(rotations, Psi, proven) over all perfect schemes: binary search over the distances."""

    def attempt(least: int | None) -> list[int] | None:
        masks = None if least is None else distances.masks(least)
        cushion = least if least is not None and distances.gap else 0
        packing = packing_for(feasibility.circle, max(0, cushion))
        found = feasibility.first(steps, masks, packing=packing)
        if found is None:
            return None
        prefix, allowed = found
        return [*prefix, (allowed & -allowed).bit_length() - 1]

    try:
        best = attempt(None)
    except OutOfSteps:
        return None, 0, False
    if best is None or not distances.pairs:
        return best, 0, True
    values = np.unique(np.concatenate(list(distances.pairs.values())))
    values = values[: 1 + int(np.searchsorted(values, min(int(d.max()) for d in distances.pairs.values())))]

    def reached(k: list[int]) -> int:
        found = min(int(d[(k[b] - k[a]) % len(d)]) for (a, b), d in distances.pairs.items())
        return int(np.searchsorted(values, found))

    low, high = reached(best), len(values) - 1
    try:
        while low < high:
            middle = (low + high + 1) // 2
            found = attempt(int(values[middle]))
            if found is None:
                high = middle - 1
            else:
                best, low = found, reached(found)
        best = attempt(int(values[low])) or best  # first in order among those of equal Psi
    except OutOfSteps:
        return best, int(values[low]), False
    return best, int(values[low]), True


class _Middles:
    """Enumerates the middles of the last job's perfect runs, keeping the largest Psi."""

    def __init__(
        self, feasibility: Feasibility, distances: Distances, steps: Steps, ceiling: int | None
    ) -> None:
        self.feasibility, self.distances, self.steps = feasibility, distances, steps
        self.ceiling = ceiling  # no scheme has a larger Psi
        self.best: list[int] | None = None
        self.value = 0
        self.n = feasibility.circle.n

    def search(self) -> None:
        self._descend([0], self.feasibility.add(self.feasibility.empty(), 0, 0))

    def _descend(self, prefix: list[int], load: list[list[tuple[int, int]]]) -> None:
        if self.best is not None and self.value == self.ceiling:
            return
        self.steps.take()
        j, n = len(prefix), self.n[len(prefix)]
        allowed = self.feasibility.admissible(load, j)
        if j == len(self.n) - 1:
            if allowed:
                for middle in sorted(run_middle(s, length, n) for s, length in circular_runs(allowed, n)):
                    self._offer([*prefix, middle])
            return
        # no symmetry is cut: the middle of a run that is the whole circle does not turn with it
        for k in range(n):
            if allowed >> k & 1 and self._promising(prefix, k):
                self._descend([*prefix, k], self.feasibility.add(load, j, k))

    def _promising(self, prefix: list[int], k: int) -> bool:
        """Could this prefix still beat the best? Its own pairs bound Psi from above."""
        if self.best is None:
            return True
        return all(self._pair(i, at, len(prefix), k) > self.value for i, at in enumerate(prefix))

    def _pair(self, a: int, at: int, b: int, k: int) -> int:
        distance = self.distances.pairs.get((a, b))
        return self.value + 1 if distance is None else int(distance[(k - at) % len(distance)])

    def _offer(self, k: list[int]) -> None:
        found = [int(d[(k[b] - k[a]) % len(d)]) for (a, b), d in self.distances.pairs.items()]
        psi = min(found, default=0)
        if self.best is None or psi > self.value:
            self.best, self.value = k, psi
