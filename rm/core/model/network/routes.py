"""A plan in time and space: when each iteration starts, how fast it sends, which spines its flows take.

FORESIGHT Sec. III, "Problem Statement" and "Beyond Simple Delays". What a policy may add to its
`Alignment`; who cannot delay, throttle or pin (a host without an agent, one switch without
spines) leaves that part out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class FlowRoute:
    """The path of all that one host sends to another during a range of operations.

    `spines` are (spine number, parts): this many of the flow's parts go over that spine;
    more than one spine means subflows. The sender must not exceed `cap_bps` in all, and each
    subflow its share of it: the plan has reserved no more.
    """

    source: str
    destination: str
    cap_bps: int
    spines: tuple[tuple[int, int], ...]

    @property
    def shares(self) -> tuple[tuple[int, float], ...]:
        """(spine number, share), by spine; the shares add up to 1."""
        total = sum(parts for _, parts in self.spines)
        return tuple((spine, parts / total) for spine, parts in self.spines)


@dataclass(frozen=True, slots=True)
class RoutedRange:
    """Routes of the operations `first_op` to `last_op` of an iteration, both included.

    Operations are the communications of an iteration (phases of the profile, collectives), counted
    from 0 in the order of their starts; all steps of one ring all-reduce are one operation.
    """

    first_op: int
    last_op: int
    routes: tuple[FlowRoute, ...]

    def route(self, source: str, destination: str) -> FlowRoute | None:
        return next((r for r in self.routes if (r.source, r.destination) == (source, destination)), None)


@dataclass(frozen=True, slots=True)
class PlannedIteration:
    """One iteration of one job; times in microseconds from the plan's beginning.

    The job waits `delay_us` after its previous iteration, which makes it start at `start_us` if
    all goes by plan; it then lasts `length_us`. `throttle` (0 < throttle <= 1) scales the rate at
    which each of its flows may send.
    """

    start_us: int
    delay_us: int
    length_us: int
    throttle: float = 1.0
    ranges: tuple[RoutedRange, ...] = ()

    @property
    def end_us(self) -> int:
        return self.start_us + self.length_us

    def range_of(self, op: int) -> RoutedRange | None:
        """The routes that hold for operation `op`; None = none are planned."""
        return next((r for r in self.ranges if r.first_op <= op <= r.last_op), None)


@dataclass(frozen=True, slots=True)
class CommPlan:
    """The planned iterations of jobs that share links, in order; all start at the plan's beginning.

    `contention_free`: if every job keeps to its profile, no link is ever loaded above its
    capacity. The plan repeats every `cycle_us`, which leaves each job time for all of its
    iterations; the last of them may overlap with the first ones of other jobs.
    """

    iterations: Mapping[int, tuple[PlannedIteration, ...]]
    contention_free: bool
    cycle_us: int

    def at(self, job: int, iteration: int) -> PlannedIteration | None:
        """What is planned for an iteration (counted from 0, without end); None = nothing."""
        planned = self.iterations.get(job)
        if not planned:
            return None
        rounds, number = divmod(iteration, len(planned))
        one = planned[number]
        if rounds == 0:
            return one
        delay_us = one.delay_us
        if number == 0:
            delay_us = self.cycle_us + one.start_us - planned[-1].end_us
        return replace(one, start_us=one.start_us + rounds * self.cycle_us, delay_us=delay_us)

    @property
    def end_us(self) -> int:
        """When the last planned iteration ends."""
        return max((p[-1].end_us for p in self.iterations.values() if p), default=0)

    @property
    def mean_iteration_us(self) -> Fraction:
        """Mean over the planned iterations of all jobs, delays included, if all goes by plan."""
        times = [i.delay_us + i.length_us for p in self.iterations.values() for i in p]
        return Fraction(sum(times), max(1, len(times)))

    @property
    def repeated_mean_us(self) -> Fraction:
        """The same in the long run, as the plan repeats."""
        jobs = [len(p) for p in self.iterations.values() if p]
        return Fraction(self.cycle_us * len(jobs), max(1, sum(jobs)))
