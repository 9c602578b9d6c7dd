"""first-fit: the baseline that knows no network.

Hosts in inventory order, each filled as far as it goes, and on each the first GPUs that are idle or,
for jobs that share GPUs, have the memory: FF as Ada-SRSF, Sec. IV-A describes it ("the first n
available GPUs in order"). As few hosts as the gang allows when the user bounds their number.
"""

from __future__ import annotations

import numpy as np

from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts, host_by_host


class FirstFitPolicy:
    """The first hosts of the inventory that hold the job; further candidates start later."""

    name = "first-fit"

    def __init__(self) -> None:
        self._capacities = LatestCapacities()

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, _rank)


POLICY = FirstFitPolicy


def _rank(ask: Ask) -> Ranking:
    inventory = np.arange(len(ask.caps))

    def choose(caps: Ints) -> Counts:
        return host_by_host(inventory, caps, ask.gang)

    return Ranking(choose, np.zeros(ask.capacities.gpu_index.shape), "first hosts with room")
