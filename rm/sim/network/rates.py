"""Rates of streams that are connected over tight links, found once for each company they keep."""

from __future__ import annotations

from rm.sim.network.plan import Plan, Wire
from rm.sim.network.running import Current
from rm.sim.network.sharing import fill

REMEMBERED = 8_192  # companies


class Rates:
    """Sets the `share` of streams.

    With `remember` the same plans under way together get what they got the last time: jobs in step
    are few streams that meet again and again. Flows by themselves are too many for that to pay.
    """

    def __init__(self, remember: bool) -> None:
        self._remember = remember
        self._known: dict[frozenset[Plan], dict[Plan, float]] = {}

    def find(self, streams: list[Current], wires: list[Wire]) -> None:
        """`wires` has all tight wires of the streams, and `streams` whoever is on these."""
        if not wires:
            for current in streams:
                current.share = current.cap
            return
        if not self._remember:
            fill(streams, [wire for wire in wires if wire.tight])
            return
        company = frozenset([current.plan for current in streams])
        distinct = len(company) == len(streams)  # a plan may be under way twice
        if distinct:
            rates = self._known.get(company)
            if rates is not None:
                for current in streams:
                    current.share = rates[current.plan]
                return
        fill(streams, [wire for wire in wires if wire.tight])
        if distinct:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[company] = {current.plan: current.share for current in streams}
