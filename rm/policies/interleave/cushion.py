"""The cushion between communication phases.

Psi is the least distance between contending phases: `gap` from end to start, or `midpoint`
between the phases' middles as in Metronome's eq. 9 (R11, R12). Distances are kept exact in
units of 1/(2*slots) tick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from rm.policies.interleave.circle import Circle, LinkLoad, Vector

METRICS = ("gap", "midpoint")


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

    def least(self, k: Sequence[int]) -> int | None:
        """Psi of the scheme in which job j is rotated by k[j] slots, in 1/(2*slots) tick."""
        return min((int(d[(k[b] - k[a]) % len(d)]) for (a, b), d in self.pairs.items()), default=None)

    def psi(self, k: Sequence[int]) -> Fraction | None:
        """Psi of the scheme, in ticks."""
        found = self.least(k)
        return None if found is None else self.ticks(found)

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
