"""When each iteration starts and how fast it sends, on logical links.

FORESIGHT Alg. 1, `SolveTiming`: iterations are placed one at a time; the job with the least
attained service is next (iterations placed x isolated period, ties to the lowest id), it takes
the throttling rate that ends its iteration first, and for that rate the least delay at which
its demand fits on all the links that it uses.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.occupancy import Load, Occupancy
from rm.policies.foresight.patterns import Shape, capacity

Shapes = Mapping[int, tuple[Shape, ...]]
"""Each job's shapes at its throttling rates, the unthrottled one first."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one iteration was placed: `start_us` counts the delay, `shape` is the rate chosen."""

    job: int
    iteration: int
    start_us: int
    delay_us: int
    shape: Shape

    @property
    def end_us(self) -> int:
        return self.start_us + self.shape.length_us


def solve_timing(jobs: Sequence[JobDemand], shapes: Shapes, links: Links) -> list[Slot]:
    """All iterations of all jobs, in the order of placement; no logical link is overloaded.

    A job that fits at no rate is given its links alone, see `Shape.fits`.
    """
    occupancy = Occupancy(lambda link: capacity(link, links))

    def place(job: JobDemand, iteration: int, ready: int) -> Slot:
        slot = earliest(job, iteration, ready, shapes[job.job], occupancy.least_start)
        occupancy.reserve(loads_of(slot.shape), slot.start_us)
        return slot

    return least_attained_service(jobs, place)


def least_attained_service(
    jobs: Iterable[JobDemand], place: Callable[[JobDemand, int, int], Slot]
) -> list[Slot]:
    """Call place(job, iteration, ready time) in the order of least attained service."""
    by_id = {job.job: job for job in jobs}
    slots: list[Slot] = []
    waiting = [(0, id, 0, 0) for id in sorted(by_id)]  # attained, id, iteration, ready
    while waiting:
        attained, id, iteration, ready = heapq.heappop(waiting)
        slot = place(by_id[id], iteration, ready)
        slots.append(slot)
        if iteration + 1 < by_id[id].iterations:
            heapq.heappush(waiting, (attained + by_id[id].period_us, id, iteration + 1, slot.end_us))
    return slots


def earliest(
    job: JobDemand,
    iteration: int,
    ready: int,
    shapes: Iterable[Shape],
    least_start: Callable[[Iterable[Load], int], int],
) -> Slot:
    """The slot that ends first among the rates at which the job fits; of equals the faster rate."""
    best: Slot | None = None
    for shape in usable(shapes):
        if best is not None and ready + shape.length_us >= best.end_us:
            continue
        start = least_start(loads_of(shape), ready)
        if best is None or start + shape.length_us < best.end_us:
            best = Slot(job.job, iteration, start, start - ready, shape)
    assert best is not None, "a job has at least one profile"
    return best


def usable(shapes: Iterable[Shape]) -> list[Shape]:
    """Those that fit alone; where none does, all of them."""
    shapes = list(shapes)
    return [s for s in shapes if s.fits] or shapes


def loads_of(shape: Shape) -> list[Load]:
    return [(link, p.start_us, p.end_us, load) for p in shape.patterns for link, load in p.loads]
