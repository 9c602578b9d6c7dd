"""consolidate: as few hosts as possible, and of those the ones that it fills best.

A job on one host needs no network, and hosts left whole are there for the jobs to come. This is the
consolidation that Tiresias (NSDI 2019, Sec. 4.2) and CASSINI's Themis-like baseline (Sec. 5.1) ask
for. Settled here:

* One host that holds the whole gang: the one with the least room to spare (best fit).
* Several: the roomiest are filled, and the host with the least room that is enough takes the rest.
* GPUs that are shared: those with the least memory left first, so that idle ones remain for jobs
  that want them for themselves.
"""

from __future__ import annotations

import numpy as np

from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.gang import Gang, Ints
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts


class ConsolidatePolicy:
    """The fewest hosts, best fit; ties by inventory order."""

    name = "consolidate"

    def __init__(self) -> None:
        self._capacities = LatestCapacities()

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, _rank)


POLICY = ConsolidatePolicy


def _rank(ask: Ask) -> Ranking:
    def choose(caps: Ints) -> Counts:
        return fewest_hosts(caps, ask.gang)

    memory_left = ask.capacities.gpu_mem() if ask.shape.gpu_mem_bytes else ask.capacities.gpu_index
    return Ranking(choose, memory_left.astype(np.float64), "the fewest hosts, best filled")


def fewest_hosts(caps: Ints, gang: Gang) -> Counts:
    """The fewest hosts that hold the gang, given that it fits: the roomiest, and the tightest last."""
    count = gang.host_count(caps)
    rest = caps.copy()
    chosen: list[int] = []
    for _ in range(count - 1):
        chosen.append(int(np.argmax(rest)))
        rest[chosen[-1]] = 0
    need = max(gang.tasks - int(caps[chosen].sum()), 1)
    chosen.append(int(np.argmin(np.where(rest >= need, rest, np.iinfo(np.int64).max))))
    return list(zip(chosen, gang.spread([int(caps[n]) for n in chosen]), strict=True))
