"""Scores and utilisations of links (R7, R8, R10)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from rm.policies.interleave.profile import Phases

MANY = 24  # jobs on a link


def score(excess: int, capacity: int, slots: int) -> float:
    """Metronome's score, 100 * CASSINI's eq. 2: 100 = no contention; may be negative (R7)."""
    return float(100 - Fraction(100 * excess, capacity * slots))


def score_eq18(excess: int, capacity: int, slots: int) -> float:
    """Metronome's eq. 18 as printed: it never falls below 100 - (jobs - 1)."""
    return float(100 - Fraction(excess, capacity * slots))


def utilisation(
    phases: Sequence[Phases], k: Sequence[int], mul: Sequence[int], perimeter: int, slots: int, capacity: int
) -> tuple[Fraction, Fraction]:
    """(xi, excess): shares of capacity used and exceeded, exact in continuous time (R8, M eq. 6).

    Job j of `phases` is rotated by k[j] slots and repeats mul[j] times on the circle.
    """
    around = perimeter * slots  # in units of 1/slots tick every time is an integer
    steps: dict[int, int] = {0: 0}
    for mine, shift, b in zip(phases, k, mul, strict=True):
        period = perimeter * (slots // b)
        for i in range(b):
            for offset, duration, bandwidth in mine:
                start = (offset * slots + shift * perimeter + i * period) % around
                end = start + duration * slots
                for left, right in ((start, min(end, around)), (0, max(0, end - around))):
                    if left < right:
                        steps[left] = steps.get(left, 0) + bandwidth
                        steps[right] = steps.get(right, 0) - bandwidth
    level = used = over = 0
    marks = sorted(steps)
    for left, right in zip(marks, [*marks[1:], around], strict=True):
        level += steps[left]
        used += min(level, capacity) * (right - left)
        over += max(0, level - capacity) * (right - left)
    return Fraction(used, capacity * around), Fraction(over, capacity * around)


def random_phase(jobs: Sequence[tuple[int, Phases]], capacity: int) -> tuple[float, float]:
    """(xi, excess) expected when the jobs' phases are independent and uniform (R10).

    `jobs` are (period, canonical phases) pairs. Of more than `MANY` jobs the sum is taken as normally
    distributed: every one of its values would have to be worked out, and no single one counts.
    """
    if len(jobs) > MANY:
        return _normally(jobs, capacity)
    chance: dict[int, float] = {0: 1.0}
    for period, phases in jobs:
        levels: dict[int, int] = {}
        for _, duration, bandwidth in phases:
            levels[bandwidth] = levels.get(bandwidth, 0) + duration
        levels[0] = period - sum(levels.values())
        joint: dict[int, float] = {}
        for total, p in chance.items():
            for bandwidth, ticks in levels.items():
                joint[total + bandwidth] = joint.get(total + bandwidth, 0.0) + p * ticks / period
        chance = joint
    used = sum(p * min(total, capacity) for total, p in chance.items()) / capacity
    over = sum(p * max(0, total - capacity) for total, p in chance.items()) / capacity
    return used, over


def _normally(jobs: Sequence[tuple[int, Phases]], capacity: int) -> tuple[float, float]:
    mean = variance = 0.0
    for period, phases in jobs:
        own = sum(duration * bandwidth for _, duration, bandwidth in phases) / period
        mean += own
        variance += sum(duration * bandwidth**2 for _, duration, bandwidth in phases) / period - own**2
    above, deviation = mean - capacity, math.sqrt(max(variance, 0.0))
    if deviation == 0.0:
        over = max(0.0, above)
    else:
        z = above / deviation
        over = above * (1 + math.erf(z / math.sqrt(2))) / 2
        over += deviation * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return (mean - over) / capacity, over / capacity


def unmatched_score(jobs: Sequence[tuple[int, Phases]], capacity: int) -> float:
    """Score of a link whose jobs' periods do not match: expected, without rotation (R10)."""
    return 100.0 * (1.0 - random_phase(jobs, capacity)[1])
