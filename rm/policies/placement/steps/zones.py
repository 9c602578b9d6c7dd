"""Which zones a job goes to: the nearest that fits; only when none fits, the fewest near each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb

COMBINATIONS_MAX = 20_000  # beyond that zones are joined greedily instead of by full search

Fits = Callable[[Sequence[str]], bool]
Delay = Callable[[str, str], float]


def fitting_zones(capacity: Mapping[str, int], user_delay: Mapping[str, float], fits: Fits) -> list[str]:
    """The zones that alone hold the job: nearest to the user first, then roomier, then by name (R35)."""
    alone = [z for z in capacity if capacity[z] > 0 and fits((z,))]
    return sorted(alone, key=lambda z: (user_delay[z], -capacity[z], z))


def spill_zones(
    capacity: Mapping[str, int],
    user_delay: Mapping[str, float],
    zone_delay: Delay,
    fits: Fits,
) -> list[str]:
    """The zones that hold the job together, nearest to the user first; [] when not even all do (R35).

    The smallest number of zones; among those the smallest worst delay between two of them, then
    the smallest sum of user delays, then names.
    """
    usable = sorted(z for z in capacity if capacity[z] > 0)
    if not fits(usable):
        return []

    def rank(zones: Sequence[str]) -> tuple[float, float, tuple[str, ...]]:
        worst = max((zone_delay(a, b) for a, b in combinations(zones, 2)), default=0)
        return worst, sum(user_delay[z] for z in zones), tuple(zones)

    for size in range(1, len(usable) + 1):
        groups: Iterable[Sequence[str]]
        if comb(len(usable), size) <= COMBINATIONS_MAX:
            groups = combinations(usable, size)
        else:
            groups = (_grown(z, usable, size, zone_delay) for z in usable)
        best = min((g for g in groups if fits(g)), key=rank, default=None)
        if best is not None:
            return sorted(best, key=lambda z: (user_delay[z], z))
    return sorted(usable, key=lambda z: (user_delay[z], z))


def _grown(start: str, zones: Sequence[str], size: int, zone_delay: Delay) -> list[str]:
    """`start` joined by the zones nearest to what is already joined."""
    group = [start]
    rest = [z for z in zones if z != start]
    while len(group) < size:
        nearest = min(rest, key=lambda z: (max(zone_delay(z, g) for g in group), z))
        group.append(nearest)
        rest.remove(nearest)
    return sorted(group)
