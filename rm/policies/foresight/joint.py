"""Timing and routing together: the whole of FORESIGHT (Sec. III, Alg. 1 `Schedule`).

Three ways from a routing that fails back to the timing:

- "paper": the loop of Alg. 1. All is timed, then all is routed; an iteration that comes near a
  bad range has its communication inflated at the first encounter, and finds fewer and fewer
  units of its links at further ones; and again, until nothing is bad or `ROUNDS` are over. By how
  much to inflate and to reduce is not published.
- "local" (default): each iteration is routed as it is placed, so a bad range is met when it
  would arise, and repaired there: that iteration alone waits until its flows can be coloured, or
  takes another rate, whichever ends first. Nothing that was placed moves in time.
- "merged": as "local", but a chain of patterns is coloured as if all of it sent at once, as in
  the paper.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.merging import MergedRange, merge_ranges, placed, placed_patterns
from rm.policies.foresight.occupancy import Occupancy
from rm.policies.foresight.patterns import LogicalLink, Shape, capacity
from rm.policies.foresight.routing import Routed, solve_routing
from rm.policies.foresight.spacetime import SpineBook
from rm.policies.foresight.timing import Shapes, Slot, earliest, least_attained_service, loads_of, usable

ROUNDS = 100
INFLATION = 4  # an inflated pattern holds its links for a 1/INFLATION of its time longer


def solve_local(
    jobs: Sequence[JobDemand], shapes: Shapes, links: Links, merged: bool = False
) -> tuple[list[Slot], Routed]:
    """Slots in which every flow has its units of spine links; only what fits nowhere is bad."""
    occupancy = Occupancy(lambda link: capacity(link, links))
    book = SpineBook(links, merged)
    count = 0

    def place(job: JobDemand, iteration: int, ready: int) -> Slot:
        nonlocal count
        waiting: list[tuple[int, int, int, Shape]] = []  # (end, rate number, start, shape)
        for rate, shape in enumerate(usable(shapes[job.job])):
            start = occupancy.least_start(loads_of(shape), ready)
            heapq.heappush(waiting, (start + shape.length_us, rate, start, shape))
        while True:
            _, rate, start, shape = heapq.heappop(waiting)
            slot = Slot(job.job, iteration, start, start - ready, shape)
            later = book.insert([placed(count, slot, n, p) for n, p in enumerate(shape.patterns) if p.flows])
            if later is None:
                break
            start = occupancy.least_start(loads_of(shape), start + later)
            heapq.heappush(waiting, (start + shape.length_us, rate, start, shape))
        occupancy.reserve(loads_of(slot.shape), slot.start_us)
        count += 1
        return slot

    slots = least_attained_service(jobs, place)
    patterns = placed_patterns(slots)
    routes = {(p.slot, p.pattern): book.spines(p.slot, p.pattern) for p in patterns}
    return slots, Routed(routes, tuple(MergedRange((p,)) for p in patterns if not p.fits))


@dataclass(slots=True)
class _Bad:
    """A range in which routing failed, and how often it did."""

    start_us: int
    end_us: int
    encounters: int = 1


def solve_rounds(jobs: Sequence[JobDemand], shapes: Shapes, links: Links) -> tuple[list[Slot], Routed]:
    """Alg. 1: timing and routing in turns; what is still bad after `ROUNDS` stays so.

    Of the bad ranges of one round only the first is kept: repairing it moves all later ones.
    """
    bad: list[_Bad] = []
    for _ in range(ROUNDS):
        slots = _timing(jobs, shapes, links, bad)
        routed = solve_routing(merge_ranges(placed_patterns(slots)), links, subflows=True)
        if not routed.bad:
            break
        first = routed.bad[0]
        met = [b for b in bad if b.start_us < first.end_us and first.start_us < b.end_us]
        for known in met:
            known.encounters += 1
        if not met:
            bad.append(_Bad(first.start_us, first.end_us))
    return slots, routed


def _timing(jobs: Sequence[JobDemand], shapes: Shapes, links: Links, bad: Sequence[_Bad]) -> list[Slot]:
    """`SolveTiming` with bad ranges: lines 5 to 9."""
    lost = 0  # units of each leaf's links that the iteration being placed must not count on

    def left(link: LogicalLink) -> int:
        return capacity(link, links) - (lost if link.leaf else 0)

    occupancy = Occupancy(left)

    def place(job: JobDemand, iteration: int, ready: int) -> Slot:
        nonlocal lost
        until = ready + job.period_us
        met = max((b.encounters for b in bad if b.start_us < until and ready < b.end_us), default=0)
        rates = [(s, _inflated(s) if met else s) for s in usable(shapes[job.job])]
        lost = max(0, met - 1)
        while not all(load <= left(link) for link, _, _, load in loads_of(rates[0][1])):
            lost -= 1  # it must still fit alone
        fitting = [w for _, w in rates if all(load <= left(link) for link, _, _, load in loads_of(w))]
        slot = earliest(job, iteration, ready, fitting, occupancy.least_start)
        occupancy.reserve(loads_of(slot.shape), slot.start_us)
        return replace(slot, shape=next(s for s, wide in rates if wide is slot.shape))

    return least_attained_service(jobs, place)


def _inflated(shape: Shape) -> Shape:
    patterns = [replace(p, end_us=p.end_us + (p.end_us - p.start_us) // INFLATION) for p in shape.patterns]
    return replace(shape, patterns=tuple(patterns))
