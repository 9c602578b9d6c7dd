"""rack: below as few leaves as possible, and of those the ones that it fills best.

Traffic inside a rack does not touch the leaves' uplinks, which are what is oversubscribed. It is the
locality that Themis prefers (its slowdown penalty for workers in several racks: CASSINI Sec. 4.2).
Settled here:

* One leaf that holds the whole gang: the one with the least room to spare (best fit).
* Several: the roomiest are filled, and the leaf with the least room that is enough takes the rest.
* Below a leaf the roomiest hosts first. Ranks are consecutive below each leaf, so that a ring over the
  hosts leaves each leaf once.
* A host on no known leaf counts as a leaf of its own; without a fabric all do.
"""

from __future__ import annotations

import numpy as np

from rm.core.job import Job
from rm.core.ports import Proposal
from rm.core.snapshot import Snapshot
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.gang import Gang, Ints
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts, host_by_host


class RackPolicy:
    """The fewest leaves, best fit; ties by inventory order."""

    name = "rack"
    Options = None

    def __init__(self) -> None:
        self._capacities = LatestCapacities()

    def candidates(self, job: Job, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(job, snapshot, self._capacities.under(snapshot), explain, _rank)


POLICY = RackPolicy


def _rank(ask: Ask) -> Ranking:
    leaf = leaf_numbers(ask)

    def choose(caps: Ints) -> Counts:
        place = np.empty(int(leaf.max()) + 1, dtype=np.int64)  # of each leaf in the order of choice
        place[leaves_in_order(caps, leaf, ask.gang)] = np.arange(len(place))
        return host_by_host(np.lexsort((-caps, place[leaf])), caps, ask.gang)

    return Ranking(choose, ask.capacities.gpu_index.astype(np.float64), "the fewest leaves, best filled")


def leaf_numbers(ask: Ask) -> Ints:
    """A number for each host's leaf, in the order in which the inventory first names them."""
    above = ask.snapshot.fabric.leaf_of if ask.snapshot.fabric is not None else {}
    numbers: dict[tuple[bool, str], int] = {}
    found = []
    for host in ask.capacities.hosts:
        leaf = above.get(host.name)
        key = (False, host.name) if leaf is None else (True, leaf)
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, dtype=np.int64)


def leaves_in_order(caps: Ints, leaf: Ints, gang: Gang) -> list[int]:
    """All leaves: first those that shall hold the gang, given that it fits, then the roomiest."""
    room = np.bincount(leaf, caps).astype(np.int64)
    order: list[int] = []
    alone = [n for n in np.flatnonzero(room >= gang.tasks) if gang.fits(np.where(leaf == n, caps, 0))]
    if alone:
        order.append(int(min(alone, key=lambda n: (room[n], n))))
    else:
        left, need = room.copy(), gang.tasks
        while need > 0 and left.max() > 0:
            enough = np.where(left >= need, left, np.iinfo(np.int64).max)
            last = int(np.argmin(enough))
            chosen = last if order and left[last] >= need else int(np.argmax(left))
            order.append(chosen)
            need -= int(left[chosen])
            left[chosen] = 0
    rest = np.argsort(-room, kind="stable").tolist()
    return order + [n for n in rest if n not in order]
