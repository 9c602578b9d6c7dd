"""lwf: least workload first, LWF-κ.

Source: Ada-SRSF, Sec. IV-A and Algorithm 1. A job of at most κ GPUs takes the GPUs with the least
remaining workload wherever they are, so it meets at most κ hosts; a larger one takes hosts in the
order of their total remaining workload and empties one after the other, so that its tasks are
together. Settled here:

* Line 11 picks the ⌈|G(J)|/N_g⌉ least loaded servers, lines 13-15 then go through all of them in
  order; the job spills on to the next server where GPU memory, or another job, refuses a GPU.
* Workload counts E_J as far as the job declares or reports it (`rm.core.model.progress`); a job of
  which nothing is known counts `unknown_us`.
* Equal workloads: the lower GPU of the earlier host in the inventory.
* A task that needs several GPUs takes the least loaded of one host together and is compared by
  their sum; jobs without GPUs count tasks instead, and a task that a host was given counts there
  for the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.errors import ConfigError
from rm.policies.placement.steps.capacity import LatestCapacities
from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.network_score import Floats
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts, host_by_host, one_by_one, slot_sums
from rm.policies.placement.steps.workload import LatestWorkload, Workload
from rm.units import DAY_US


@dataclass(frozen=True, slots=True)
class LwfOptions:
    """`kappa` the largest job, in GPUs, that may be scattered; `unknown_us` the remaining time of a
    job of which nothing is known."""

    kappa: int = 1
    unknown_us: int = DAY_US


class LwfPolicy:
    """See the module. Keeps only caches of what it was last shown; every answer is a pure function."""

    name = "lwf"

    def __init__(self, options: LwfOptions | None = None) -> None:
        self._options = options or LwfOptions()
        if self._options.kappa < 0 or self._options.unknown_us <= 0:
            raise ConfigError(
                f"lwf cannot work with kappa = {self._options.kappa} and unknown_us = "
                f"{self._options.unknown_us}.",
                "kappa is a number of GPUs, 0 or more; unknown_us a time in microseconds above 0.",
            )
        self._capacities = LatestCapacities()
        self._workload = LatestWorkload(self._options.unknown_us)

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, self._rank)

    def _rank(self, ask: Ask) -> Ranking:
        load = self._workload.under(ask.snapshot, ask.capacities)
        kappa = self._options.kappa
        if ask.gpus <= kappa:
            own = self._workload.own(ask.request)
            return least_loaded_slots(ask, load, own, f"{ask.gpus} of the GPUs with the least workload")
        order = np.argsort(load.hosts, kind="stable")

        def choose(caps: Ints) -> Counts:
            return host_by_host(order, caps, ask.gang)

        return Ranking(choose, load.gpus, "hosts with the least workload", hours(load))


POLICY = LwfPolicy
OPTIONS = LwfOptions


def least_loaded_slots(ask: Ask, load: Workload, own: float, note: str) -> Ranking:
    """The slots of the least workload anywhere in the cluster: list scheduling.

    `own` is what each task of the job adds to its host, where tasks have no GPUs.
    """
    if ask.shape.gpus_per_task:  # those of a host are taken together, whichever they are
        keys = slot_sums(ask.capacities.usable(ask.shape), load.gpus, ask.shape.gpus_per_task)
    else:
        most = min(int(ask.caps.max()), ask.gang.tasks)
        keys = load.hosts[:, None] + own * np.arange(most)

    def choose(caps: Ints) -> Counts:
        return one_by_one(keys, caps, ask.gang)

    return Ranking(choose, load.gpus, note, hours(load))


def hours(load: Workload) -> tuple[str, Floats]:
    """The workload of the hosts, for people."""
    return "workload_gpu_h", np.round(load.hosts / 3_600_000_000, 3)
