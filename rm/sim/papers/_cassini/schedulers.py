"""The schedulers that CASSINI compares, Sec. 5.1, as rm's policies and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning
from rm.sim.papers.frame.parameters import parameters


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A queue, a placement with its options, and whether CASSINI augments them.

    `loops`: what CASSINI does with placements whose affinity graph has one. `ideal`: every job alone
    in the network. `lots`: the placement draws by lot, and so takes a seed.
    """

    name: str
    queue: str
    placement: str = "rack"
    placing: Mapping[str, Any] = field(default_factory=dict)
    lots: bool = True
    augmented: bool = False
    loops: str = "discard"
    ideal: bool = False

    def policies(self, seed: int) -> Policies:
        options = {**self.placing, **({"seed": seed} if self.lots else {})}
        if not self.augmented:
            comm = load("comm", "none")
            return Policies(load("queue", self.queue), load("placement", self.placement, options), comm)
        wide = {"base": self.placement, "base_options": options, "candidates": self.tuning.top_k}
        return Policies(
            load("queue", self.queue),
            load("placement", "cassini", wide),
            load("comm", "cassini", {"loops": self.loops}),
        )

    @property
    def tuning(self) -> Tuning:
        return Tuning(top_k=parameters("cassini")["candidates"] if self.augmented else 1)

    def plus_cassini(self, name: str, loops: str = "discard") -> Scheduler:
        return replace(self, name=name, augmented=True, loops=loops)


THEMIS = Scheduler("Themis", "themis", placing={"across": "any"})
TH_CASSINI = THEMIS.plus_cassini("Th+CASSINI")
TH_LEAVE = THEMIS.plus_cassini("Th+CASSINI, leave", "leave")
TH_JOINT = THEMIS.plus_cassini("Th+CASSINI, joint", "joint")
POLLUX = Scheduler("Pollux", "goodput", placing={"across": "any", "near": "host"})
PO_CASSINI = POLLUX.plus_cassini("Po+CASSINI")
RANDOM = Scheduler("Random", "themis", "random")
IDEAL = Scheduler("Ideal", "themis", lots=False, ideal=True)
PACKED = Scheduler("packed", "themis", lots=False)  # ours: as few leaves as possible
PACKED_JOINT = PACKED.plus_cassini("packed, joint", "joint")
