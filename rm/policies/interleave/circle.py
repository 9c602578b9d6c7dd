"""The unified circle: slot patterns of jobs, and rotations as operations on bit sets.

A circle has D slots; a job with mul iterations per circle occupies patterns of n = D/mul slots.
Sets of slots are Python integers (bit s = slot s), so that a rotation is two shifts (R5, R6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rm.policies.interleave.profile import Phases
from rm.policies.interleave.unify import Plan

Vector = NDArray[np.int64]
Runs = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]  # (bandwidth, ((first slot, slots), ...))


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One link of a block: its capacity, and the canonical phases of each job that uses it."""

    capacity: int
    phases: Mapping[int, Phases]


def slot_pattern(phases: Phases, perimeter: int, mul: int, slots: int) -> tuple[int, ...]:
    """Bandwidth per slot of one iteration; a slot counts when a phase touches it (R6).

    The cover is conservative: no overload in slots means none in continuous time.
    """
    n = slots // mul
    pattern = [0] * n
    for offset, duration, bandwidth in phases:
        first = offset * slots // perimeter
        end = -(-(offset + duration) * slots // perimeter)
        for s in range(first, min(end, first + n)):  # a circle that is shorter than the iteration wraps it
            pattern[s % n] = max(pattern[s % n], bandwidth)
    return tuple(pattern)


def runs_of(pattern: Sequence[int]) -> Runs:
    """Maximal runs of equal bandwidth, grouped by bandwidth, ascending."""
    found: dict[int, list[tuple[int, int]]] = {}
    start = 0
    for s in range(1, len(pattern) + 1):
        if s == len(pattern) or pattern[s] != pattern[start]:
            if pattern[start]:
                found.setdefault(pattern[start], []).append((start, s - start))
            start = s
    return tuple((v, tuple(found[v])) for v in sorted(found))


def rotate(bits: int, k: int, n: int) -> int:
    """The n-slot set moved k slots later (0 <= k < n)."""
    return ((bits << k) | (bits >> (n - k))) & ((1 << n) - 1)


class Circle:
    """Jobs of one plan on the links of one block, ready for searching.

    `pattern[l][j]` is the job's slot pattern on link l, `runs[l][j]` the same as runs, and
    `volume[l]` the bandwidth-slots that all jobs put on the link in one circle.
    """

    __slots__ = ("capacity", "jobs", "links", "mul", "n", "pattern", "perimeter", "runs", "slots", "volume")

    def __init__(self, plan: Plan, links: Sequence[LinkLoad]) -> None:
        self.jobs = plan.order
        self.perimeter = plan.perimeter
        self.slots = plan.slots
        self.mul = plan.mul
        self.n = tuple(plan.slots // b for b in plan.mul)
        self.links = tuple(links)
        self.capacity = tuple(link.capacity for link in links)
        self.pattern = tuple(
            tuple(
                slot_pattern(link.phases.get(job, ()), plan.perimeter, b, plan.slots)
                for job, b in zip(plan.order, plan.mul, strict=True)
            )
            for link in links
        )
        self.runs = tuple(tuple(runs_of(p) for p in patterns) for patterns in self.pattern)
        self.volume = tuple(
            sum(sum(p) * b for p, b in zip(patterns, plan.mul, strict=True)) for patterns in self.pattern
        )

    def load(self, k: Sequence[int]) -> Vector:
        """Bandwidth per link and slot when job j is rotated by k[j] slots."""
        total = np.zeros((len(self.links), self.slots), dtype=np.int64)
        for link, patterns in enumerate(self.pattern):
            for j, pattern in enumerate(patterns):
                one = np.roll(np.array(pattern, dtype=np.int64), k[j])
                total[link] += np.tile(one, self.mul[j])
        return total

    def excess(self, k: Sequence[int]) -> tuple[int, ...]:
        """Sum over the slots of max(0, load - capacity), for each link (R7)."""
        load = self.load(k)
        return tuple(int(np.maximum(load[i] - b, 0).sum()) for i, b in enumerate(self.capacity))

    @property
    def room(self) -> int:
        """Capacity-slots of all links together: the divisor of the score."""
        return self.slots * sum(self.capacity)
