"""Good rotations fast where no perfect ones exist: the start of the exact search, and its upper bound.

Jobs are placed one after the other where they add least, the largest first; then one job at a time,
and after that two at a time, are moved to the best place beside the others, until none gains.
"""

from __future__ import annotations

import numpy as np

from rm.policies.interleave.curves import Array, Curves
from rm.policies.interleave.feasible import OutOfSteps, Steps

_PLACES = 72  # of the first job of a pair; the second one has all, and single moves refine both
_CELLS_PER_STEP = 1000


class Descent:
    """Rotations of one circle, reference at 0, with their load and its excess."""

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self.circle = curves.circle
        jobs = range(1, len(self.circle.n))
        self.order = sorted(jobs, key=lambda j: -int(curves.volume[j].sum()))
        self.rotations = [0] * len(self.circle.n)
        self.load = curves.load([0])
        for j in self.order:
            self._put(j, self.load)
        self._settle()

    @property
    def excess(self) -> int:
        return int(self.curves.excess(self.load)[0])

    def pairs(self, floor: int, steps: Steps) -> None:
        """Move two jobs at a time while that helps, the excess is above `floor` and steps are left."""
        try:
            while self.excess > floor and any(
                self._move(a, b, steps) for a in self.order for b in self.order if a < b
            ):
                pass
        except OutOfSteps:
            pass

    def _move(self, a: int, b: int, steps: Steps) -> bool:
        n, slots = self.circle.n[a], self.circle.slots
        ks = np.arange(0, n, max(1, n // _PLACES))
        steps.take(2 + len(ks) * slots * len(self.circle.links) // _CELLS_PER_STEP)
        before = self.excess
        loads = self._without(b, self._without(a, self.load)) + self.curves.turned(a, ks)
        curve = self.curves.curve(b, loads)
        total = self.curves.excess(loads) + curve.min(axis=1)
        i = int(total.argmin())
        if total[i] >= before:
            return False
        self.rotations[a] = int(ks[i])
        self._put(b, loads[i : i + 1])
        self._settle()
        return True

    def _settle(self) -> None:
        """Move one job at a time until none gains."""
        moved = True
        while moved:
            moved = False
            for j in self.order:
                before = self.rotations[j]
                self._put(j, self._without(j, self.load))
                moved |= self.rotations[j] != before

    def _put(self, j: int, load: Array) -> None:
        """Job j at its best beside `load`; it stays where it is if nothing is better."""
        curve = self.curves.curve(j, load)[0]
        k = int(curve.argmin())
        if curve[k] < curve[self.rotations[j]]:
            self.rotations[j] = k
        self.load = load + self._alone(j)

    def _without(self, j: int, load: Array) -> Array:
        return load - self._alone(j)

    def _alone(self, j: int) -> Array:
        return self.curves.turned(j, np.array([self.rotations[j]]))
