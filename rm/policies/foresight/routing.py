"""Which spines the flows of a merged range take, whole or as subflows.

FORESIGHT Sec. III, "Assigning Flow Paths" and "Handling Flow Granularity", Alg. 1 `SolveRouting`.
First every flow is one edge and every spine one colour; where that takes more colours than
there are spines, a flow becomes one edge for each unit that it reserves and a spine as many
colours as its link has units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm.policies.foresight.colouring import Colouring, edge_colouring, max_degree
from rm.policies.foresight.demand import Links
from rm.policies.foresight.merging import MergedRange
from rm.policies.foresight.patterns import LeafFlow

Spines = tuple[tuple[int, int], ...]
"""(spine, parts of the flow that go there), by spine."""

Routing = Mapping[tuple[int, int], tuple[Spines, ...]]
"""By (slot, pattern): the spines of each of the pattern's flows."""


@dataclass(frozen=True, slots=True)
class Routed:
    """All routes, and the merged ranges in which flows collide in spite of them."""

    routes: Routing
    bad: tuple[MergedRange, ...] = ()


def solve_routing(ranges: Iterable[MergedRange], links: Links, subflows: bool) -> Routed:
    """Routes for every range; one that does not fit is spread as evenly as its colours allow."""
    routes: dict[tuple[int, int], tuple[Spines, ...]] = {}
    bad = []
    for merged in ranges:
        flows = merged.flows
        spines, proper = route_flows(list(flows.values()), links, subflows)
        if not proper:
            bad.append(merged)
        by_flow = dict(zip(flows, spines, strict=True))
        for p in merged.patterns:
            routes[p.slot, p.pattern] = tuple(by_flow[p.job, f.flow] for f in p.flows)
    return Routed(routes, tuple(bad))


def route_flows(flows: Sequence[LeafFlow], links: Links, subflows: bool) -> tuple[list[Spines], bool]:
    """Spines of flows that send at the same time, and whether no spine link is overloaded."""
    assert links.fabric is not None
    spines = links.fabric.spines
    whole = [links.units_of(f.rate_bps, 1) for f in flows]
    routes, needed = _spread(flows, whole, spines)
    if needed <= spines or not subflows:
        return routes, needed <= spines
    masks = fill(flows, links)
    if masks is not None:
        return [spines_of(mask, links) for mask in masks], True
    return _spread(flows, [f.units for f in flows], spines)[0], False


def fill(flows: Sequence[LeafFlow], links: Links) -> list[int] | None:
    """The units that each flow gets as a bit mask of colours; None = some link has too few.

    Colour c is unit c % units of spine c // units. Large flows come first, each on as few spines
    as are free at its turn.
    """
    if max_degree([(f.source, f.destination) for f in flows for _ in range(f.units)]) > links.colours:
        return None
    book = Colouring(links.colours)
    edges: dict[int, list[int]] = {}
    count = 0
    for i in sorted(range(len(flows)), key=lambda i: (-flows[i].units, i)):
        flow, edges[i] = flows[i], []
        while (left := flow.units - len(edges[i])) > 0:
            block, room = narrowest(book.free(flow.source, flow.destination), left, links)
            for _ in range(max(1, min(left, room))):
                book.insert(count, flow.source, flow.destination, block)
                edges[i].append(count)
                count += 1
    return [sum(1 << book.colour[e] for e in edges[i]) for i in range(len(flows))]


def narrowest(free: int, wanted: int, links: Links) -> tuple[int, int]:
    """The spine to take units from: (mask of its colours, how many of them are free).

    The one with the least room that still holds all that is wanted, else the one with the most.
    """
    block = (1 << links.units) - 1
    spines = [block << at for at in range(0, links.colours, links.units)]
    best, most = spines[0], -1
    for spine in spines:
        room = (free & spine).bit_count()
        if (most < wanted and room > most) or wanted <= room < most:
            best, most = spine, room
    return best, most


def spines_of(mask: int, links: Links) -> Spines:
    """The subflows of a flow that holds these units: those on one spine are one subflow."""
    units = Counter(c // links.units for c in range(links.colours) if mask >> c & 1)
    return tuple(sorted(units.items()))


def _spread(flows: Sequence[LeafFlow], edges: Sequence[int], spines: int) -> tuple[list[Spines], int]:
    """Colour flow i as edges[i] edges with as many colours as it takes, the same number to each
    spine: the routes and the number of colours."""
    ends = [(f.source, f.destination) for f, n in zip(flows, edges, strict=True) for _ in range(n)]
    needed = max_degree(ends)
    colours = iter(edge_colouring(ends))
    each = max(1, -(-needed // spines))
    return [tuple(sorted(Counter(next(colours) // each for _ in range(n)).items())) for n in edges], needed
