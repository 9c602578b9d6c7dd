"""Alg. 1's feedback by another reading, which brings the printed gain out: `repair = "accumulated"`.

The paper says that at the first encounter of a bad range communication is inflated, at further ones the
available capacity is reduced (lines 5 to 9), and neither by how much nor for how long. Here

- bad ranges of all rounds accumulate, of each round the earliest, since repairing it moves all later ones;
- an iteration whose span meets one is inflated, by the same share in all rounds;
- where bad ranges overlap, the leaves' links that they use have a unit less for each beyond the first, for
  as long as they overlap and for all iterations;
- the whole is done for each of `INFLATIONS`, and the plan is taken whose jobs end first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.merging import MergedRange, merge_ranges, placed_patterns
from rm.policies.foresight.occupancy import Load, Occupancy
from rm.policies.foresight.patterns import Shape, capacity
from rm.policies.foresight.routing import Routed, solve_routing
from rm.policies.foresight.timing import Shapes, Slot, earliest, least_attained_service, loads_of, usable

INFLATIONS = tuple(Fraction(tenths, 10) for tenths in (10, 11, 12, 13))
ROUNDS = 100


def solve_accumulated(jobs: Sequence[JobDemand], shapes: Shapes, links: Links) -> tuple[list[Slot], Routed]:
    """The best of the plans of all inflations; what is still bad after `ROUNDS` stays so."""
    found = [_rounds(jobs, shapes, links, inflation) for inflation in INFLATIONS]
    return min(found, key=lambda plan: (bool(plan[1].bad), _ends_us(plan[0])))


def _ends_us(slots: Sequence[Slot]) -> int:
    last: dict[int, int] = {}
    for slot in slots:
        last[slot.job] = max(slot.end_us, last.get(slot.job, 0))
    return sum(last.values())


def _rounds(
    jobs: Sequence[JobDemand], shapes: Shapes, links: Links, inflation: Fraction
) -> tuple[list[Slot], Routed]:
    bad: list[MergedRange] = []
    for _ in range(ROUNDS):
        slots = _timing(jobs, shapes, links, bad, inflation)
        routed = solve_routing(merge_ranges(placed_patterns(slots)), links, subflows=True)
        if not routed.bad:
            break
        bad.append(min(routed.bad, key=lambda one: one.start_us))
    return slots, routed


def _timing(
    jobs: Sequence[JobDemand], shapes: Shapes, links: Links, bad: Sequence[MergedRange], inflation: Fraction
) -> list[Slot]:
    """`SolveTiming` with what earlier rounds found."""
    occupancy = Occupancy(lambda link: capacity(link, links))
    occupancy.reserve(_lost(bad))
    spans = [(one.start_us, one.end_us) for one in bad]

    def place(job: JobDemand, iteration: int, ready: int) -> Slot:
        until = ready + job.period_us
        met = any(start < until and ready < end for start, end in spans)
        rates = [(shape, _inflated(shape, inflation) if met else shape) for shape in usable(shapes[job.job])]
        slot = earliest(job, iteration, ready, [wide for _, wide in rates], occupancy.least_start)
        occupancy.reserve(loads_of(slot.shape), slot.start_us)
        return replace(slot, shape=next(shape for shape, wide in rates if wide is slot.shape))

    return least_attained_service(jobs, place)


def _lost(bad: Sequence[MergedRange]) -> list[Load]:
    """A unit of each leaf's link for each bad range that overlaps an earlier one, while it does."""
    lost: list[Load] = []
    for number, one in enumerate(bad):
        start, end = one.start_us, one.end_us
        before = [b for b in bad[:number] if b.start_us < end and start < b.end_us]
        if before:
            first = max(start, min(b.start_us for b in before))
            last = min(end, max(b.end_us for b in before))
            nodes = {node for pattern in one.patterns for node in pattern.nodes}
            lost += [(node, first, last, 1) for node in sorted(nodes)]
    return lost


def _inflated(shape: Shape, inflation: Fraction) -> Shape:
    patterns = [
        replace(p, end_us=p.start_us + int((p.end_us - p.start_us) * inflation)) for p in shape.patterns
    ]
    return replace(shape, patterns=tuple(patterns))
