"""Flows whose weight changes while they send: each transfer goes in parts, each with the weight of its place
among the bytes of the iteration."""

from __future__ import annotations

from dataclasses import replace

from rm.core.ports import WeighingPolicy
from rm.sim.attempt import Attempt
from rm.sim.network.port import Flow
from rm.sim.program import Communicate


class Weighing:
    """What a policy with changing weights makes of stages and flows."""

    def __init__(self, policy: WeighingPolicy) -> None:
        self._policy = policy
        self._cut: dict[Communicate, Communicate] = {}

    def cut(self, stage: Communicate) -> Communicate:
        """The stage in parts, one after the other; a ring's own steps stay."""
        found = self._cut.get(stage)
        if found is None:
            found = self._cut[stage] = replace(stage, barriers=max(stage.barriers, self._policy.parts))
        return found

    def weighed(self, attempt: Attempt, stage: Communicate, flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
        """The flows of the part that the attempt sends next."""
        weight = self._policy.weight(self.bytes_ratio(attempt, stage))
        return tuple(replace(flow, weight=weight) for flow in flows)

    def bytes_ratio(self, attempt: Attempt, stage: Communicate) -> float:
        """The share of the iteration's bytes that is sent in the middle of the part."""
        sizes = [one.bits if isinstance(one, Communicate) else 0.0 for one in attempt.program.stages]
        sent = sum(sizes[: attempt.stage]) + (attempt.barrier + 0.5) / stage.barriers * stage.bits
        return sent / sum(sizes)
