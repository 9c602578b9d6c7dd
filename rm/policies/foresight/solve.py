"""One door to FORESIGHT: from demands to a plan, in the paper's four variants.

FORESIGHT Sec. IV, "Impact of Time-Space Scheduling": "timing" (TS) only delays and throttles;
"routing" (RO) also gives each flow a spine; "subflows" (SUB) splits flows where whole ones do not
fit; "full" (FORESIGHT) repairs what cannot be routed by changing the timing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.network.routes import CommPlan, FlowRoute, PlannedIteration, RoutedRange
from rm.errors import UsageError
from rm.policies.foresight.cycle import cycle_us
from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.feedback import solve_accumulated
from rm.policies.foresight.joint import solve_local, solve_rounds
from rm.policies.foresight.merging import merge_ranges, placed_patterns
from rm.policies.foresight.patterns import shapes_of
from rm.policies.foresight.routing import Routed, solve_routing
from rm.policies.foresight.timing import Slot, solve_timing

VARIANTS = ("timing", "routing", "subflows", "full")
REPAIRS = ("local", "merged", "paper", "accumulated")


def schedule(
    jobs: Sequence[JobDemand], links: Links, variant: str = "full", repair: str = "local"
) -> CommPlan:
    """The plan of all jobs. Without a fabric there is nothing to route: host links are timed.

    Raises:
        UsageError: an unknown variant or repair, or two jobs of one number.
    """
    if variant not in VARIANTS or repair not in REPAIRS:
        raise UsageError(
            f"FORESIGHT has no variant {variant!r} with the repair {repair!r}.",
            f"Variants are {', '.join(VARIANTS)}; repairs are {', '.join(REPAIRS)}.",
        )
    if len({job.job for job in jobs}) < len(jobs):
        raise UsageError("Two jobs have the same number.", "Give each job a number of its own.")
    shapes = {job.job: shapes_of(job, links) for job in jobs}
    if variant == "timing" or links.fabric is None:
        slots, routed = solve_timing(jobs, shapes, links), Routed({})
    elif variant == "full":
        if repair == "paper":
            slots, routed = solve_rounds(jobs, shapes, links)
        elif repair == "accumulated":
            slots, routed = solve_accumulated(jobs, shapes, links)
        else:
            slots, routed = solve_local(jobs, shapes, links, repair == "merged")
    else:
        slots = solve_timing(jobs, shapes, links)
        ranges = merge_ranges(placed_patterns(slots))
        routed = solve_routing(ranges, links, subflows=variant == "subflows")
    pinned = bool(routed.routes) or not any(p.flows for s in slots for p in s.shape.patterns)
    return CommPlan(
        iterations=_iterations(jobs, slots, routed),
        contention_free=pinned and not routed.bad and all(s.shape.fits for s in slots),
        cycle_us=cycle_us(slots, routed, links),
    )


def _iterations(
    jobs: Sequence[JobDemand], slots: Sequence[Slot], routed: Routed
) -> dict[int, tuple[PlannedIteration, ...]]:
    flows = {job.job: job.flows for job in jobs}
    planned: dict[int, list[PlannedIteration]] = {job: [] for job in sorted(flows)}
    for number, slot in enumerate(slots):
        ranges = []
        for at, pattern in enumerate(slot.shape.patterns):
            spines = routed.routes.get((number, at))
            if spines is not None:
                routes = tuple(
                    FlowRoute(*flows[slot.job][f.flow], f.rate_bps, s)
                    for f, s in zip(pattern.flows, spines, strict=True)
                )
                ranges.append(RoutedRange(pattern.first_op, pattern.last_op, routes))
        planned[slot.job].append(
            PlannedIteration(
                slot.start_us, slot.delay_us, slot.shape.length_us, float(slot.shape.throttle), tuple(ranges)
            )
        )
    return {job: tuple(iterations) for job, iterations in planned.items()}
