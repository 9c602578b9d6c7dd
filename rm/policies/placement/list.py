"""list: list scheduling, the GPUs with the least remaining workload, wherever they are.

Source: LS as Ada-SRSF, Sec. IV-A describes it ("chooses the top-n GPUs with the least workload"),
which is LWF-κ with an unbounded κ. It balances the GPUs and scatters jobs over hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.placement_request import PlacementRequest
from rm.core.model.snapshot import Snapshot
from rm.core.ports import Proposal
from rm.policies.placement.lwf import LwfOptions, LwfPolicy
from rm.units import DAY_US


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`unknown_us` as of lwf."""

    unknown_us: int = DAY_US


class ListPolicy:
    name = "list"

    def __init__(self, options: ListOptions | None = None) -> None:
        unknown_us = (options or ListOptions()).unknown_us
        self._lwf = LwfPolicy(LwfOptions(kappa=1 << 62, unknown_us=unknown_us))

    def candidates(self, request: PlacementRequest, snapshot: Snapshot, explain: bool = False) -> Proposal:
        return self._lwf.candidates(request, snapshot, explain)


POLICY = ListPolicy
OPTIONS = ListOptions
