"""Exact search for the least contention where no perfect rotation exists (R15).

max(0, x - B) is convex, so what a job adds to the excess never shrinks when others are placed
first: the sum of the jobs' least additions bounds any completion from below, and so does the
volume that finds no free room. Curves over all rotations of a job come from prefix sums; the
last two jobs are tried in one batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rm.policies.interleave.circle import Circle, Vector
from rm.policies.interleave.feasible import OutOfSteps, Steps

_BATCH_CELLS = 1 << 19  # bounds the memory of a batch
_STEP_CELLS = 1024  # array cells that cost about one step of the bit-set search
_STEPS_PER_CURVE = 3  # what one call of an array routine costs, in such steps


class LeastExcess:
    """Branch and bound for one circle; reference at 0, others in rank order."""

    def __init__(self, circle: Circle) -> None:
        self.circle = circle
        self.capacity = np.array(circle.capacity, dtype=np.int64)[:, None]
        self.jobs = len(circle.n)
        self.base = [  # (links, slots) at rotation 0
            np.stack([np.tile(np.array(p[j], dtype=np.int64), circle.mul[j]) for p in circle.pattern])
            for j in range(self.jobs)
        ]
        self.volume = [int(b.sum()) for b in self.base]
        self.volume_by_link = [b.sum(axis=1) for b in self.base]
        self.same_as_previous = [
            j > 1 and circle.mul[j] == circle.mul[j - 1] and bool((self.base[j] == self.base[j - 1]).all())
            for j in range(self.jobs)
        ]
        self.best: list[int] = []
        self.value = 0

    def search(self, steps: Steps) -> tuple[list[int], int, int]:
        """(rotations, their excess, a lower bound on any excess); bound == excess when proven.

        The rotations are the lexicographically first of least excess when proven.
        """
        start = self.base[0]
        excess = self._excess(start)
        self.best = self._descent()
        self.value = sum(self.circle.excess(self.best))
        if self.jobs == 1:
            return self.best, self.value, self.value
        curves = [self._curve(j, start[None])[0] for j in range(1, self.jobs)]
        bound = excess + self._addition(start, 1, [int(c.min()) for c in curves])
        self.value += 1  # so that the first scheme in order, as good as the descent's, is taken
        try:
            self._branch(1, start, excess, [0], steps)
        except OutOfSteps:
            value = sum(self.circle.excess(self.best))
            return self.best, value, min(bound, value)
        return self.best, self.value, self.value

    def _branch(self, j: int, load: Vector, excess: int, prefix: list[int], steps: Steps) -> None:
        cells = sum(self.circle.n[i] for i in range(j, self.jobs)) * len(self.circle.links)
        steps.take(_STEPS_PER_CURVE * (self.jobs - j) + cells // _STEP_CELLS)
        curves = [self._curve(i, load[None])[0] for i in range(j, self.jobs)]
        least = [int(c.min()) for c in curves]
        if excess + self._addition(load, j, least) >= self.value:
            return
        curve, rest = curves[0], sum(least[1:])
        if j == self.jobs - 1:
            k = int(curve.argmin())
            self._take([*prefix, k], excess + int(curve[k]))
            return
        first = prefix[-1] if self.same_as_previous[j] else 0
        end = self.circle.n[j]
        if j == 1:
            end = self.circle.slots // math.lcm(self.circle.mul[0], self.circle.mul[1])
        promising = first + np.flatnonzero(excess + curve[first:end] + rest < self.value)
        if j == self.jobs - 2:
            self._last_two(j, load, excess, curve, promising, prefix, steps)
            return
        for k in promising.tolist():
            added = excess + int(curve[k])
            if added + rest < self.value:
                self._branch(j + 1, load + self._turned(j, k), added, [*prefix, k], steps)

    def _last_two(
        self,
        j: int,
        load: Vector,
        excess: int,
        curve: Vector,
        promising: Vector,
        prefix: list[int],
        steps: Steps,
    ) -> None:
        """All remaining rotations of the last but one job at once, with the last job's best."""
        rows = max(1, _BATCH_CELLS // load.size)
        slots = np.arange(self.circle.slots)
        for at in range(0, len(promising), rows):
            ks = promising[at : at + rows]
            ks = ks[excess + curve[ks] < self.value]
            if not len(ks):
                continue
            steps.take(2 * _STEPS_PER_CURVE + len(ks) * load.size // _STEP_CELLS)
            where = (slots[None, :] - ks[:, None]) % self.circle.slots
            loads = load[None] + self.base[j][:, where].swapaxes(0, 1)
            last = self._curve(self.jobs - 1, loads)
            total = excess + curve[ks] + last.min(axis=1)
            i = int(total.argmin())
            self._take([*prefix, int(ks[i]), int(last[i].argmin())], int(total[i]))

    def _take(self, rotations: list[int], value: int) -> None:
        if value < self.value:
            self.best, self.value = rotations, value

    def _addition(self, load: Vector, j: int, least: Sequence[int]) -> int:
        """Lower bound of what jobs j and later add to the excess of `load`."""
        free = np.maximum(self.capacity - load, 0).sum(axis=1)
        volume = sum(self.volume_by_link[j:])
        return max(sum(least), int(np.maximum(volume - free, 0).sum()))

    def _curve(self, j: int, loads: Vector) -> Vector:
        """What job j adds to the excess at each rotation; loads (batch, links, slots)."""
        n, mul = self.circle.n[j], self.circle.mul[j]
        batch = loads.shape[0]
        total = np.zeros((batch, n), dtype=np.int64)
        for link, capacity in enumerate(self.circle.capacity):
            runs = self.circle.runs[link][j]
            if not runs:
                continue
            over = loads[:, link] - capacity
            before = np.maximum(over, 0)
            for v, pieces in runs:
                added = (np.maximum(over + v, 0) - before).reshape(batch, mul, n).sum(axis=1)
                if not added.any():
                    continue
                sums = np.zeros((batch, 2 * n + 1), dtype=np.int64)
                np.cumsum(np.concatenate((added, added), axis=1), axis=1, out=sums[:, 1:])
                for offset, width in pieces:
                    total += sums[:, offset + width : offset + width + n] - sums[:, offset : offset + n]
        return total

    def _turned(self, j: int, k: int) -> Vector:
        return np.roll(self.base[j], k, axis=1)

    def _excess(self, load: Vector) -> int:
        return int(np.maximum(load - self.capacity, 0).sum())

    def _descent(self) -> list[int]:
        """Greedy placement, largest first, then one job at a time to its best: an upper bound."""
        order = sorted(range(1, self.jobs), key=lambda j: -self.volume[j])
        rotations = [0] * self.jobs
        load = self.base[0].copy()
        for j in order:
            rotations[j] = int(self._curve(j, load[None])[0].argmin())
            load = load + self._turned(j, rotations[j])
        for _ in range(4):
            moved = False
            for j in order:
                without = load - self._turned(j, rotations[j])
                curve = self._curve(j, without[None])[0]
                k = int(curve.argmin())
                if curve[k] < curve[rotations[j]]:
                    rotations[j], moved = k, True
                load = without + self._turned(j, rotations[j])
            if not moved:
                break
        return rotations
