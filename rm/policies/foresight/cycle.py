"""After how long a plan may begin again without meeting its own end.

FORESIGHT Sec. III, "Problem Statement": a schedule covers at most one common multiple of the
iteration times; then the same iterations come again. Where the last iterations of some jobs end
later than others', the next round begins beside them as soon as all links have room for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rm.policies.foresight.demand import Links
from rm.policies.foresight.occupancy import Load, Occupancy
from rm.policies.foresight.patterns import LogicalLink, capacity
from rm.policies.foresight.routing import Routed
from rm.policies.foresight.timing import Slot


def cycle_us(slots: Sequence[Slot], routed: Routed, links: Links) -> int:
    """The least time between two beginnings of the plan; at least half of its length.

    A plan with bad ranges begins again when all of it has ended.
    """
    end = max((s.end_us for s in slots), default=0)
    if routed.bad or not all(s.shape.fits for s in slots):
        return end
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for slot in slots:
        first.setdefault(slot.job, slot.start_us)
        last[slot.job] = slot.end_us
    least = max((last[job] - first[job] for job in first), default=0)
    least = max(least, -(-end // 2))
    loads = _spine_loads(slots, routed, links)
    occupancy = Occupancy(lambda link: capacity(link, links))
    occupancy.reserve(load for load in loads if load[2] > least)
    return min(end, occupancy.least_start([load for load in loads if load[1] + least < end], least))


def _spine_loads(slots: Sequence[Slot], routed: Routed, links: Links) -> list[Load]:
    """What is reserved, in absolute time: on spine links where there are routes."""
    loads: list[Load] = []
    for number, slot in enumerate(slots):
        for at, p in enumerate(slot.shape.patterns):
            start, end = slot.start_us + p.start_us, slot.start_us + p.end_us
            routes = routed.routes.get((number, at))
            loads += [(link, start, end, n) for link, n in p.loads if routes is None or not link.leaf]
            if routes is None:
                continue
            for flow, spines in zip(p.flows, routes, strict=True):
                parts = sum(n for _, n in spines)
                for spine, n in spines:
                    held = -(-flow.units * n // parts)
                    for leaf, up in ((flow.source, True), (flow.destination, False)):
                        loads.append((LogicalLink(leaf, up, spine=spine), start, end, held))
    return loads
