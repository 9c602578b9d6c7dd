"""What is under way: a transfer, and the streams that carry it."""

from __future__ import annotations

from math import inf

from rm.sim.network.plan import Plan
from rm.sim.network.port import Transfer
from rm.sim.network.sharing import Stream


class Current(Stream):
    """A stream that is under way: `left` bits at time `since`, going at `rate`, none left at `end`.

    `told` is what was left when its links last counted what they have carried; `mark` and `right`
    are notes of a search.
    """

    __slots__ = (
        "asked",
        "end",
        "left",
        "mark",
        "number",
        "of",
        "plan",
        "rate",
        "right",
        "since",
        "told",
        "wires",
    )

    def __init__(self, plan: Plan, of: Running, number: int, now: float) -> None:
        self.of = of
        self.number = number
        self.follow(plan)
        self.left = self.told = plan.size
        self.held = False
        self.share = self.level = self.rate = 0.0
        self.at = None
        self.mark = self.right = 0
        self.since = now
        self.end = inf

    def follow(self, plan: Plan) -> None:
        """Be limited as the plan says."""
        self.plan = plan
        self.path = self.wires = plan.wires
        self.cap, self.asked = plan.cap, plan.asked
        self.priority, self.weight = plan.priority, plan.weight
        self.ceiling = plan.cap / plan.weight


class Running:
    """A transfer that is under way since `begun`, with `weight` of its own weight, and which of its streams
    still are, each with its plan's index."""

    __slots__ = ("begun", "currents", "plans", "suspended", "transfer", "weight")

    def __init__(self, transfer: Transfer, plans: tuple[Plan, ...], begun: float, weight: float) -> None:
        self.begun = begun
        self.weight = weight
        self.transfer = transfer
        self.plans = plans
        self.currents: dict[Current, int] = {}
        self.suspended = False
