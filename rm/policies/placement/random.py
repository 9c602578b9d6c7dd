"""random: any of the GPUs that will do; what a good placement has to beat.

Source: RAND of Ada-SRSF, Sec. V. The choice is uniform over the task slots of the cluster and a pure
function: the generator is seeded with the option `seed` and the job's id.
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
from rm.policies.placement.steps.ranking import Ask, Ranking, propose
from rm.policies.placement.steps.slots import Counts, one_by_one


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """`seed` of the generator; another seed, another cluster of coincidences."""

    seed: int = 0


class RandomPolicy:
    """Uniform over slots of tasks; on each host over the GPUs."""

    name = "random"

    def __init__(self, options: RandomOptions | None = None) -> None:
        self._seed = (options or RandomOptions()).seed
        if self._seed < 0:
            raise ConfigError(f"random cannot work with seed = {self._seed}.", "Write 0 or more.")
        self._capacities = LatestCapacities()

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return propose(request, snapshot, self._capacities.under(snapshot), explain, self._rank)

    def _rank(self, ask: Ask) -> Ranking:
        chance = np.random.default_rng([self._seed, ask.request.job])
        gpus = chance.random(ask.capacities.gpu_index.shape)
        # a host gives its slots in turn: the order statistics of as many draws as it has slots
        # (A. Renyi, 1953), of which no more are made than the job has tasks
        most = min(int(ask.caps.max()), ask.gang.tasks)
        remain = np.maximum(ask.caps[:, None] - np.arange(most), 1)
        draws = 1 - chance.random((len(ask.caps), most))  # above 0
        slots = -np.expm1(np.cumsum(np.log(draws) / remain, axis=1))

        def choose(caps: Ints) -> Counts:
            return one_by_one(slots, caps, ask.gang)

        return Ranking(choose, gpus, "chosen at random")


POLICY = RandomPolicy
OPTIONS = RandomOptions
