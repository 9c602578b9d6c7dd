"""What jobs add to a link's excess, for all rotations at once and for many loads in one batch.

A batch is an array (rows, links, slots) of loads, in integers. Bandwidths are divided by their greatest
common divisor, so that 32 bits mostly hold every sum, which halves the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rm.policies.interleave.circle import Circle

Array = NDArray[Any]


class Curves:
    """The jobs of one circle as arrays; `unit` is what one count of bandwidth stands for.

    `most` is above every excess that occurs.
    """

    def __init__(self, circle: Circle) -> None:
        self.circle = circle
        rates = [v for runs in circle.runs for job in runs for v, _ in job]
        self.unit = math.gcd(*circle.capacity, *rates) or 1
        self.capacity = [b // self.unit for b in circle.capacity]
        largest = 2 * (sum(circle.volume) // self.unit + circle.slots * sum(self.capacity))
        self.dtype: Any = np.int32 if len(circle.n) * largest < 1 << 31 else np.int64
        self.most = largest + 1
        self._double: list[Array] = []  # rotations in views: no copies
        self.volume: list[Array] = []
        for j, mul in enumerate(circle.mul):
            patterns = [np.array(p[j], dtype=np.int64) // self.unit for p in circle.pattern]
            around = np.stack([np.tile(p, 2 * mul) for p in patterns]).astype(self.dtype)
            self._double.append(sliding_window_view(around, circle.slots, axis=1).swapaxes(0, 1))
            self.volume.append(around.sum(axis=1, dtype=self.dtype) // 2)

    def turned(self, j: int, k: Array) -> Array:
        """The loads (len(k), links, slots) of job j alone, rotated by each of `k`."""
        chosen: Array = self._double[j][self.circle.slots - k]
        return chosen

    def load(self, rotations: Sequence[int]) -> Array:
        """One row: the jobs from the first on at these rotations."""
        total = np.zeros((1, len(self.capacity), self.circle.slots), dtype=self.dtype)
        for j, k in enumerate(rotations):
            total += self._double[j][self.circle.slots - k]
        return total

    def curves(self, jobs: Iterable[int], loads: Array) -> dict[int, Array]:
        """(rows, rotations) for each job: what it alone adds to the excess of each row.

        A run of slots adds the difference of two prefix sums.
        """
        over = [loads[:, link] - b for link, b in enumerate(self.capacity)]
        before = [np.maximum(o, 0) for o in over]
        return {j: self._curve(j, over, before) for j in jobs}

    def _curve(self, j: int, over: Sequence[Array], before: Sequence[Array]) -> Array:
        n, mul, rows = self.circle.n[j], self.circle.mul[j], len(over[0])
        total: Array = np.zeros((rows, n), dtype=self.dtype)
        sums: Array = np.zeros((rows, 2 * n + 1), dtype=self.dtype)
        for link, runs in enumerate(self.circle.runs):
            for v, pieces in runs[j]:
                added = over[link] + v // self.unit
                np.maximum(added, 0, out=added)
                added -= before[link]
                if mul > 1:
                    added = added.reshape(rows, mul, n).sum(axis=1, dtype=self.dtype)
                np.cumsum(added, axis=1, dtype=self.dtype, out=sums[:, 1 : n + 1])
                np.add(sums[:, 1 : n + 1], sums[:, n : n + 1], out=sums[:, n + 1 :])
                for offset, width in pieces:
                    total += sums[:, offset + width : offset + width + n]
                    total -= sums[:, offset : offset + n]
        return total

    def curve(self, j: int, loads: Array) -> Array:
        return self.curves((j,), loads)[j]

    def excess(self, loads: Array) -> Array:
        """(rows,): sum over links and slots of what is above the capacity."""
        return self._sum(loads[:, link] - b for link, b in enumerate(self.capacity))

    def unfitting(self, loads: Array, jobs: Sequence[int]) -> Array:
        """(rows,): the volume of the jobs for which the rows have no free capacity at all."""
        volume = np.sum([self.volume[j] for j in jobs], axis=0)
        found = np.zeros(len(loads), dtype=self.dtype)
        for link, b in enumerate(self.capacity):
            free = np.maximum(b - loads[:, link], 0).sum(axis=1, dtype=self.dtype)
            found += np.maximum(volume[link] - free, 0)
        return found

    def _sum(self, parts: Any) -> Array:
        total: Array = sum(np.maximum(part, 0).sum(axis=1, dtype=self.dtype) for part in parts)
        return total
