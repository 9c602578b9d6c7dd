"""diktyo: each task in turn to the host of the least network cost to the job's tasks before it.

Source: Diktyo (J. Santos, C. Wang, T. Wauters, F. De Turck: *Diktyo: Network-Aware Scheduling in
Container-Based Clouds*, IEEE TNSM 20(4), 2023), as Metronome, Sec. IV-A compares with it: the tasks
of a job depend on one another. Settled here:

* The network cost between two hosts is the measured one-way delay, the worse direction; a host is
  next to itself. When links are in use it does not know.
* Where no task of the job is placed yet all hosts cost alike (Metronome, Sec. IV-B1: it "fails to
  detect the dependencies of the job's first pod"), and equal costs are settled as by the default
  scheduler: the least loaded host, then inventory order.
"""

from __future__ import annotations

import numpy as np

from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.policies.placement.least_loaded import DECIMALS, share_of_a_task, shares_taken
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.gang import Filling, Ints
from rm.policies.placement.steps.network_score import NetworkWeights
from rm.policies.placement.steps.network_table import LatestNetworkTable
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts


class DiktyoPolicy:
    """By delay to the tasks before, task by task; keeps only caches of what it was last shown."""

    name = "diktyo"

    def __init__(self) -> None:
        self._capacities = LatestCapacities()
        self._tables = LatestNetworkTable(NetworkWeights())

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, self._rank)

    def _rank(self, ask: Ask) -> Ranking:
        taken, by_gpu = shares_taken(ask.capacities)
        each = share_of_a_task(ask.capacities, ask.shape)
        delays_us = self._tables.under(ask.snapshot).delays_us()

        def choose(caps: Ints) -> Counts:
            filling = Filling(ask.gang, caps)
            cost = np.zeros(len(caps))
            while filling.left:
                may = filling.may_take()
                near = may & (cost == cost[may].min())
                load = np.round(taken + each * (filling.counts + 1), DECIMALS)
                host = int(np.argmin(np.where(near, load, np.inf)))
                filling.give(host)
                cost = cost + delays_us[host]
            return list(filling.given.items())

        shown = "taken_pct", np.round(100 * taken, 1)
        return Ranking(choose, np.round(by_gpu, DECIMALS), "the least network cost", shown)


POLICY = DiktyoPolicy
