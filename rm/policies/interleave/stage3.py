"""The perfect rotations of the largest cushion: Metronome's third stage (M Sec. III-C, R16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rm.policies.interleave.circle import Circle, LinkLoad
from rm.policies.interleave.cushion import Distances
from rm.policies.interleave.feasible import Feasibility, OutOfSteps, Steps, circular_runs, run_middle
from rm.policies.interleave.leftmost import Fits, Leftmost
from rm.policies.interleave.packing import packing_for
from rm.policies.interleave.search import BUDGET, Scheme, scheme_of
from rm.policies.interleave.unify import Plan

_SHARES = 8  # of the steps: none of the first attempts gets more than one


@dataclass(frozen=True, slots=True)
class Spread:
    """A perfect scheme and its Psi in ticks; `psi` and `bound` are None when no phases contend.

    No scheme has a Psi above `bound`; `exact` is False when the budget ended before this one was
    known to reach it.
    """

    scheme: Scheme
    psi: Fraction | None
    exact: bool
    bound: Fraction | None


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
    feasibility, distances = Feasibility(circle), Distances(circle, metric)
    widest = _Widest(feasibility, distances, budget)
    best = widest.search()
    if best is None:
        return None
    exact = widest.proven
    if over == "middles" and len(circle.n) > 1:
        middles = _Middles(feasibility, distances, Steps(budget), widest.ceiling)
        try:
            middles.search()
        except OutOfSteps:
            exact = middles.best is not None and middles.value == widest.ceiling
        else:
            exact = True
        best = middles.best or best
    psi = distances.psi(best)
    bound = None if psi is None else psi if exact else distances.ticks(widest.ceiling)
    return Spread(scheme_of(circle, best, 0), psi, exact, bound)


class _Widest:
    """Largest Psi over all perfect schemes: a binary search over the distances that occur.

    After `search` no scheme has a Psi above `ceiling`, and `proven` says whether one has it.
    """

    def __init__(self, feasibility: Feasibility, distances: Distances, budget: int) -> None:
        self.circle = feasibility.circle
        self.fits = Fits(feasibility)
        self.distances = distances
        self.budget = budget
        self.steps = Steps(budget)
        self.ceiling = 0
        self.proven = False

    def search(self) -> list[int] | None:
        """The rotations; None when no scheme is perfect, or that is not decided."""
        try:
            best = self._attempt(None, self.budget)
        except OutOfSteps:
            return None
        if best is None or not self.distances.pairs:
            self.proven = True
            return best
        curves = list(self.distances.pairs.values())
        values = np.unique(np.concatenate(curves))
        values = values[: 1 + int(np.searchsorted(values, min(int(d.max()) for d in curves)))]

        def reached(k: Sequence[int]) -> int:
            return int(np.searchsorted(values, self.distances.least(k) or 0))

        low, high = reached(best), len(values) - 1
        slow: list[int] = []  # what took too long to decide, falling

        def attempt(target: int, limit: int) -> bool:
            """Narrow what is between low and high at `target`; False when that is not decided."""
            nonlocal best, low, high
            try:
                found = self._attempt(int(values[target]), limit)
            except OutOfSteps:
                return False
            if found is None:
                high = min(high, target - 1)
            else:
                best, low = found, reached(found)
            return True

        share = max(1, self.budget // _SHARES)
        while low < (top := min([high, *(at - 1 for at in slow)])):  # upwards, below what is slow
            middle = (low + top + 1) // 2
            if not attempt(middle, share):
                slow.append(middle)
        while low < high and attempt(low + 1, self.steps.left * 3 // 4):  # for a proof
            pass
        below = max(slow, default=high)
        while low < high and below < high:  # without one, downwards as far as that is not slow
            middle = (below + high + 1) // 2
            if not attempt(middle, max(1, self.steps.left // 3)):
                below = middle
        self.ceiling, self.proven = int(values[high]), low == high
        return self._first(int(values[low])) or best

    def _leftmost(self, least: int | None) -> Leftmost:
        if least is None:
            return Leftmost(self.fits, packing=packing_for(self.circle))
        packing = packing_for(self.circle, max(0, least) if self.distances.gap else 0)
        return Leftmost(self.fits, self.distances.masks(least), packing)

    def _attempt(self, least: int | None, limit: int) -> list[int] | None:
        """Some perfect scheme of at least this Psi; OutOfSteps after `limit` of the steps left."""
        part = Steps(min(limit, self.steps.left))
        given = part.left
        try:
            leftmost = self._leftmost(least)
            root = leftmost.root(part)
            found = None if root is None else leftmost.find(root, part)
        finally:
            self.steps.left -= given - max(0, part.left)
        return None if found is None else [found[j] for j in range(len(self.circle.n))]

    def _first(self, least: int) -> list[int] | None:
        """The first in order among those of this Psi."""
        try:
            found = self._leftmost(least).first(Steps(self.budget))
        except OutOfSteps:
            return None
        if found is None:
            return None
        prefix, allowed = found
        return [*prefix, (allowed & -allowed).bit_length() - 1]


class _Middles:
    """Enumerates the middles of the last job's perfect runs, keeping the largest Psi."""

    def __init__(self, feasibility: Feasibility, distances: Distances, steps: Steps, ceiling: int) -> None:
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
