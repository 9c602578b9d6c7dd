"""The schedulers that Metronome compares, Sec. IV-A, as rm's policies and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning
from rm.policies.regulate.controller import ControllerOptions

UNVERIFIED = ControllerOptions(verify=False)  # what each does is to be seen, also where it loses


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Placement and communication policy with their options; `ideal`: every job alone in the network.

    `top_k`: of how many placements the best aligned one is taken; the paper takes the first.
    """

    placement: str
    comm: str = "none"
    placing: Mapping[str, Any] = field(default_factory=dict)
    aligning: Mapping[str, Any] = field(default_factory=dict)
    controller: ControllerOptions = UNVERIFIED
    ideal: bool = False
    top_k: int = 1

    def policies(self) -> Policies:
        return Policies(
            load("queue", "priority"),
            load("placement", self.placement, self.placing),
            load("comm", self.comm, self.aligning),
        )

    @property
    def tuning(self) -> Tuning:
        return Tuning(top_k=self.top_k)

    def aligned(self, **options: Any) -> Scheduler:
        """With other options of the communication policy."""
        return replace(self, aligning={**self.aligning, **options})

    def averaging(self, g_t_us: int) -> Scheduler:
        """With another threshold within which periods are averaged, for placing and for aligning."""
        return replace(self.aligned(g_t_us=g_t_us), placing={**self.placing, "g_t_us": g_t_us})


DEFAULT = Scheduler("least-loaded")
DIKTYO = Scheduler("diktyo")
IDEAL = Scheduler("least-loaded", ideal=True)
# To the letter: averaged periods, pauses when an iteration is 10 % late, nothing in the network.
METRONOME = Scheduler("metronome", "metronome", {"mode": "paper"}, {"mode": "paper", "shaping": False})
# All that rm adds, together; its default has on each link what costs the slowest job least.
OURS = Scheduler("metronome", "metronome", aligning={"combine": True}, top_k=Tuning().top_k)
GATES = OURS.aligned(shaping=False)  # rotations, idle time and gates without traffic classes
CLASSES = OURS.aligned(rotation=False)  # traffic classes alone
