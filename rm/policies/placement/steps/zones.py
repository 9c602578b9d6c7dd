"""Which zones a job goes to: the nearest that fits; only when none fits, the fewest near each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from math import comb

import numpy as np
from numpy.typing import NDArray

COMBINATIONS_MAX = 20_000  # beyond that zones are joined greedily instead of by full search

Fits = Callable[[Sequence[str]], bool]
Groups = NDArray[np.int64]  # one group of zones a row, by their numbers in ascending order
Floats = NDArray[np.float64]


def fitting_zones(capacity: Mapping[str, int], user_delay: Mapping[str, float], fits: Fits) -> Iterator[str]:
    """The zones that alone hold the job: nearest to the user first, then roomier, then by name (R35). Of one
    that is farther away it is asked whether it `fits` when the nearer ones were not enough."""
    nearest_first = sorted(capacity, key=user_delay.__getitem__)
    for _, as_near in groupby(nearest_first, key=user_delay.__getitem__):
        alone = [z for z in as_near if capacity[z] > 0 and fits((z,))]
        yield from sorted(alone, key=lambda z: (-capacity[z], z)) if len(alone) > 1 else alone


def spill_zones(
    capacity: Mapping[str, int],
    user_delay: Mapping[str, float],
    delays_between: Callable[[Sequence[str]], Floats],
    tasks: int,
    fits: Fits,
) -> list[str]:
    """The zones that hold the job together, nearest to the user first; [] when not even all do (R35).

    The smallest number of zones; among those the smallest worst delay between two of them, then
    the smallest sum of user delays, then names. Of more than `COMBINATIONS_MAX` groups of a size those are
    looked at alone that grow from one zone by the nearest to all that it has.

    Args:
        capacity: tasks that each zone takes. No group fits whose sum is below `tasks`.
        delays_between: the delays between any two of the zones that it is given.
    """
    usable = sorted(z for z in capacity if capacity[z] > 0)
    if not fits(usable):
        return []
    room = np.array([capacity[z] for z in usable], dtype=np.int64)
    near = np.array([user_delay[z] for z in usable])
    apart: Floats | None = None
    grown: Groups | None = None
    most = np.sort(room)[::-1].cumsum()  # that any one, two, three, … zones hold
    for size in range(1, len(usable) + 1):
        if most[size - 1] < tasks:
            continue
        if apart is None:
            apart = delays_between(usable)
        if comb(len(usable), size) <= COMBINATIONS_MAX:
            groups = np.array(list(combinations(range(len(usable)), size)), dtype=np.int64)
        else:
            if grown is None:
                grown = _grown(apart)
            groups = np.sort(grown[:, :size], axis=1)
        groups = groups[room[groups].sum(axis=1) >= tasks]
        for group in _in_order(groups, apart, near):
            zones = [usable[n] for n in group]
            if fits(zones):
                return sorted(zones, key=lambda z: (user_delay[z], z))
    return sorted(usable, key=lambda z: (user_delay[z], z))


def _in_order(groups: Groups, apart: Floats, near: Floats) -> Iterator[list[int]]:
    """The groups by their worst delay, the sum of user delays, and names."""
    worst, users = np.zeros(len(groups)), np.zeros(len(groups))
    for i in range(groups.shape[1]):
        users += near[groups[:, i]]
        if i:
            np.maximum(worst, apart[groups[:, :i], groups[:, i : i + 1]].max(axis=1), out=worst)
    for n in np.lexsort((*groups.T[::-1], users, worst)):
        yield groups[n].tolist()


def _grown(apart: Floats) -> Groups:
    """For each zone in which order others join it: the nearest to all that have joined first, by name of
    equal ones."""
    count = len(apart)
    order = np.empty((count, count), dtype=np.int64)
    order[:, 0] = np.arange(count)
    farthest = apart.T.copy()  # from each group, in rows, to each zone
    rows = np.arange(count)
    for size in range(1, count):
        farthest[rows, order[:, size - 1]] = np.inf  # has joined
        order[:, size] = np.argmin(farthest, axis=1)
        farthest = np.maximum(farthest, apart.T[order[:, size]])
    return order
