"""What is under way: a transfer, and the streams that carry it."""

from __future__ import annotations

from math import inf

from rm.sim.network.plan import Plan
from rm.sim.network.port import Transfer
from rm.sim.network.sharing import Stream


class Current(Stream):
    """A stream that is under way: `left` bits at time `since`, going at `rate`, none left at `end`.

    `told` is what was left when its links last counted what they have carried.
    """

    __slots__ = ("asked", "end", "left", "mark", "number", "of", "plan", "rate", "since", "told", "wires")

    def __init__(self, plan: Plan, of: Running, number: int, now: float) -> None:
        self.path = self.wires = plan.wires
        self.cap = plan.cap
        self.ceiling = plan.cap / plan.weight
        self.priority = plan.priority
        self.weight = plan.weight
        self.held = False
        self.share = self.rate = 0.0
        self.asked = plan.asked
        self.left = self.told = plan.size
        self.plan = plan
        self.of = of
        self.number = number
        self.mark = 0
        self.since = now
        self.end = inf


class Running:
    """A transfer that is under way, and which of its streams still are."""

    __slots__ = ("currents", "plans", "suspended", "transfer")

    def __init__(self, transfer: Transfer, plans: tuple[Plan, ...]) -> None:
        self.transfer = transfer
        self.plans = plans
        self.currents: dict[Current, None] = {}
        self.suspended = False
