"""least-loaded: each task in turn to the host of which the least is taken.

What Kubernetes' default scheduler does pod by pod (NodeResourcesFit, LeastAllocated), against which
Metronome (Sec. IV-A) and Diktyo are compared: load is spread, and so are gangs. Settled here:

* The load of a host is the mean share taken of its CPUs, its memory and, if it has any, its GPUs,
  after it has taken the task; a GPU that is shared is taken as far as its memory is.
* Of the GPUs of a host the least taken first; ties by position, of hosts by inventory order.
"""

from __future__ import annotations

import numpy as np

from rm.core.model.asked.demand import Shape
from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.policies.placement.steps.capacity import CPUS, GPUS, MEM, Capacities, LatestCapacities
from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.network_score import Floats
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts, one_by_one

DECIMALS = 9  # equal loads are equal, in any order of the sum


class LeastLoadedPolicy:
    """By the share of the host that is taken, task by task."""

    name = "least-loaded"

    def __init__(self) -> None:
        self._capacities = LatestCapacities()

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, _rank)


POLICY = LeastLoadedPolicy


def _rank(ask: Ask) -> Ranking:
    taken, by_gpu = shares_taken(ask.capacities)
    each = share_of_a_task(ask.capacities, ask.shape)
    most = min(int(ask.caps.max()), ask.gang.tasks)
    keys = np.round(taken[:, None] + each[:, None] * np.arange(1, most + 1), DECIMALS)

    def choose(caps: Ints) -> Counts:
        return one_by_one(keys, caps, ask.gang)

    shown = "taken_pct", np.round(100 * taken, 1)
    return Ranking(choose, np.round(by_gpu, DECIMALS), "the least loaded hosts", shown)


def shares_taken(capacities: Capacities) -> tuple[Floats, Floats]:
    """The share of each host that is taken, 0 to 1; and of each GPU (hosts x positions)."""
    free, total = capacities.free_table(), capacities.total
    memory, left = capacities.gpu_total, capacities.gpu_mem()
    by_gpu = 1 - np.where(left > 0, left / np.maximum(memory, 1), capacities.idle())
    by_gpu[capacities.gpu_index < 0] = 0
    shares = [1 - free[row] / np.maximum(total[row], 1) for row in (CPUS, MEM)]
    shares.append(by_gpu.sum(axis=1) / np.maximum(total[GPUS], 1))
    return _mean(shares, total), by_gpu


def share_of_a_task(capacities: Capacities, shape: Shape) -> Floats:
    """What one task takes of each host, as a share."""
    total = capacities.total
    gpus = np.full(len(capacities.hosts), float(shape.gpus_per_task))
    if shape.gpu_mem_bytes:
        gpus = gpus * shape.gpu_mem_bytes * total[GPUS] / np.maximum(capacities.gpu_total.sum(axis=1), 1)
    needs = (shape.cpus_per_task, shape.mem_bytes_per_task, gpus)
    return _mean([need / np.maximum(have, 1) for need, have in zip(needs, total, strict=True)], total)


def _mean(shares: list[Floats], total: Ints) -> Floats:
    """The mean over what each host has at all."""
    has = total > 0
    mean: Floats = np.where(has, np.array(shares), 0).sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    return mean
