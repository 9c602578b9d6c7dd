"""What is compared on real workloads: placement and communication policies, mostly under one queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning
from rm.policies.regulate.controller import ControllerOptions

QUEUE = "backfill"
OURS, IDEAL = "ours", "ideal"


@dataclass(frozen=True, slots=True)
class System:
    """`ideal`: every job has the network to itself. `verified`: left alone where managing is slower. `queue`:
    the queue policy, unless a comparison has one for all."""

    what: str
    placement: str
    comm: str = "none"
    placing: Mapping[str, Any] = field(default_factory=dict)
    aligning: Mapping[str, Any] = field(default_factory=dict)
    top_k: int = 1
    patience: float = 0.0
    verified: bool = False
    ideal: bool = False
    queue: str = QUEUE

    def policies(self, queue: str = "") -> Policies:
        """`queue`: in place of its own."""
        return Policies(
            load("queue", queue or self.queue),
            load("placement", self.placement, self.placing),
            load("comm", self.comm, self.aligning),
        )

    @property
    def tuning(self) -> Tuning:
        return Tuning(top_k=self.top_k, patience=self.patience)

    @property
    def controller(self) -> ControllerOptions:
        return ControllerOptions(verify=self.verified)


PAPER = {"mode": "paper"}
# Schemes that say nothing of hosts get the fewest hosts, best filled.
SYSTEMS: Mapping[str, System] = {
    "first-fit": System("Slurm-like: the first free GPUs, nothing known of the network", "first-fit"),
    "zone-first": System("the best connected hosts", "zone"),
    "lwf": System("the GPUs with the least work ahead", "lwf"),
    "ada-srsf": System("LWF with AdaDUAL: transfers join others or wait", "lwf", "adadual"),
    "metronome": System(
        "to the letter: averaged periods, pauses, nothing in the network",
        "metronome", "metronome", PAPER, {**PAPER, "shaping": False},
    ),
    "cassini": System("the most compatible of ten placements", "cassini", "cassini", top_k=10),
    "foresight": System("iterations delayed, flows routed", "consolidate", "foresight"),
    "mltcp": System("flows count by what they have sent", "consolidate", "mltcp"),
    "crux": System("classes and paths by GPU intensity", "consolidate", "crux"),
    OURS: System("rm's defaults", "metronome", "metronome", top_k=Tuning().top_k, verified=True),
    "ours-packed": System("rm with `candidates = 1`", "metronome", "metronome", verified=True),
    "ours-patient": System(
        "rm with `patience = 1`", "metronome", "metronome",
        top_k=Tuning().top_k, patience=1.0, verified=True,
    ),
    IDEAL: System("a bound: every job alone in the network", "consolidate", ideal=True),
    "ada-srsf-own": System("Ada-SRSF with the order of its paper, `srsf`", "lwf", "adadual", queue="srsf"),
    "ours-response": System(
        "rm with `queue = \"response\"` and `patience = 1`", "metronome", "metronome",
        top_k=Tuning().top_k, patience=1.0, verified=True, queue="response",
    ),
}  # fmt: skip
COMPARED = tuple(name for name, one in SYSTEMS.items() if one.queue == QUEUE)  # unless others are asked for
