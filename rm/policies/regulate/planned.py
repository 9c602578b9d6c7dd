"""Plans of single iterations on live hosts: when each iteration begins, and how fast it may send.

FORESIGHT Sec. V, "agents on the servers". A plan begins when the last of its jobs comes to the end of the
iteration that it is in; hosts get the instants of a whole round, which repeats, and their jobs wait by
themselves. Who is late by more than the next delay absorbs is planned anew: the whole plan moves by what
is left of it, so that all keep their order. Who began too early, since it did not hear of that in time, meets
others: they will all be late by as much, and the plan moves at once. A plan that jobs do not keep is dropped,
and one profiled anew: whose iterations mostly last longer than planned, or the last of those that moved the
plan by more than `COSTS` of its time. It is tried again after `AGAIN_US`, and then after twice as long each
time. Pure: times are arguments, in microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rm.core.model.network.routes import CommPlan, PlannedIteration
from rm.policies.regulate.iterating import Iterating
from rm.protocol.attempts import Grid
from rm.units import SECOND_US

TOLERANCE = 0.05  # of the shortest iteration: less is noise
COSTS = 0.10
SLOW = 1.10  # times its length an iteration lasts that is longer than planned
WINDOW = 20  # iterations by which that is judged
LEAST_MOVES = 3  # one job may write a checkpoint
SETTLING = 3  # iterations from the beginning in which jobs come to their places: moves cost nothing
AGAIN_US = 60 * SECOND_US
LONGEST_TIMES = 64  # as long until it is tried again


@dataclass(slots=True)
class Changed:
    """The grids that jobs get now, None = they wait no longer; and jobs that did not keep to theirs."""

    grids: dict[int, Grid | None] = field(default_factory=dict)
    unruly: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class _Round:
    """A plan that is followed; `epoch_us` is its beginning now, `next_us` when jobs' next iterations begin.
    One that was `dropped` begins again at `again_us`."""

    plan: CommPlan
    attempts: Mapping[int, Iterating]
    next_us: dict[int, int]
    epoch_us: int | None = None
    begun_us: int = 0  # when it began at first, before it moved
    dropped: int = 0  # how often
    again_us: int | None = None
    slow: dict[int, deque[bool]] = field(default_factory=dict)  # the newest iterations of each job
    moves: deque[tuple[int, int]] = field(default_factory=deque)  # when it moved, and by how much

    def same(self, plan: CommPlan, running: Mapping[int, Iterating]) -> bool:
        now = {job: running[job].attempt for job in plan.iterations}
        return self.plan == plan and now == {job: one.attempt for job, one in self.attempts.items()}


class Plans:
    """Which jobs follow a plan, and where they are in it."""

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}  # by job

    @property
    def jobs(self) -> set[int]:
        """Those that wait as a plan has it."""
        return {job for job, own in self._rounds.items() if own.epoch_us is not None and own.again_us is None}

    def standings(self) -> dict[int, str | None]:
        """Of each job of a plan: "" = it follows it, None = it has not begun, else why it was dropped."""
        return {job: _standing(own) for job, own in self._rounds.items()}

    def spines(self, job: int) -> Mapping[str, tuple[int, ...]]:
        """For each iteration of a round, the spine over which each of its hosts sends, where that changes."""
        own = self._rounds.get(job)
        return _spines(own.plan.iterations[job]) if own is not None and job in self.jobs else {}

    def aligned(
        self, plans: Iterable[CommPlan], running: Mapping[int, Iterating], next_us: Mapping[int, int]
    ) -> Changed:
        """Follow these from now on; one that is followed already goes on."""
        before, self._rounds = self._rounds, {}
        changed = Changed()
        for plan in plans:
            if not followable(plan) or not plan.iterations.keys() <= running.keys():
                continue
            own = before.get(min(plan.iterations))
            if own is None or not own.same(plan, running):
                mine = {job: running[job] for job in plan.iterations}
                own = _Round(plan, mine, {job: next_us[job] for job in mine if job in next_us})
                changed.grids |= self._begin(own)
            self._rounds.update(dict.fromkeys(plan.iterations, own))
        return changed

    def report(self, job: int, end_us: int, net_us: int) -> Changed:
        """An iteration of the job has ended, and the next begins; it lasted `net_us` without its waits."""
        own = self._rounds.get(job)
        if own is None:
            return Changed()
        own.next_us[job] = end_us
        if own.again_us is not None:
            if end_us < own.again_us:
                return Changed()
            own.again_us, own.epoch_us = None, None
        if own.epoch_us is None:
            return Changed(self._begin(own))
        seen = own.slow.setdefault(job, deque(maxlen=WINDOW))
        seen.append(net_us > SLOW * _length_us(own.plan, job))
        if sum(seen) > WINDOW // 2:
            return self._drop(own, job, end_us)
        off_us = _off_us(own, job, end_us)
        if abs(off_us) <= _tolerance_us(own.plan, job):
            return Changed()
        longest_us = max(_length_us(own.plan, one) for one in own.plan.iterations)
        span_us = WINDOW * longest_us
        if end_us > own.begun_us + SETTLING * longest_us:
            own.moves.append((end_us, abs(off_us)))
        while own.moves and own.moves[0][0] < end_us - span_us:
            own.moves.popleft()
        if len(own.moves) >= LEAST_MOVES and sum(by_us for _, by_us in own.moves) > COSTS * span_us:
            return self._drop(own, job, end_us)
        own.epoch_us += abs(off_us)
        return Changed({one: _grid(own, one) for one in own.plan.iterations})

    @staticmethod
    def _drop(own: _Round, job: int, now_us: int) -> Changed:
        own.again_us = now_us + AGAIN_US * min(LONGEST_TIMES, 1 << own.dropped)
        own.dropped += 1
        own.moves.clear()
        own.slow.clear()
        return Changed(dict.fromkeys(own.plan.iterations), (job,))

    def _begin(self, own: _Round) -> dict[int, Grid | None]:
        """When all of its jobs were heard, at the end of the iterations that they are in."""
        if own.next_us.keys() < own.plan.iterations.keys():
            return {}
        own.epoch_us = max(at_us + _length_us(own.plan, job) for job, at_us in own.next_us.items())
        own.begun_us = own.epoch_us
        return {job: _grid(own, job) for job in own.plan.iterations}


def _standing(own: _Round) -> str | None:
    if own.again_us is not None:
        return "its plan of iterations was dropped, since jobs did not keep to it"
    return None if own.epoch_us is None else ""


def followable(plan: CommPlan) -> bool:
    """Is there anything in it that hosts have to do? The first delay of a job is its place in the round."""
    return len(plan.iterations) > 1 and any(
        one.delay_us or one.throttle < 1 for planned in plan.iterations.values() for one in planned
    )


def _length_us(plan: CommPlan, job: int) -> int:
    return min(one.length_us for one in plan.iterations[job])


def _tolerance_us(plan: CommPlan, job: int) -> int:
    return int(TOLERANCE * _length_us(plan, job))


def _off_us(own: _Round, job: int, begun_us: int) -> int:
    """By how much an iteration that has begun makes the next one late, or began too early: below zero."""
    assert own.epoch_us is not None, "the plan has begun"
    planned, cycle_us = own.plan.iterations[job], own.plan.cycle_us
    starts = [one.start_us - planned[0].start_us for one in planned]
    origin_us = own.epoch_us + planned[0].start_us
    around, offset_us = divmod(begun_us + _length_us(own.plan, job) // 2 - origin_us, cycle_us)
    number = bisect_right(starts, offset_us) - 1
    start_us = origin_us + around * cycle_us + starts[number]
    following_us = starts[number + 1] if number + 1 < len(starts) else starts[0] + cycle_us
    slack_us = following_us - starts[number] - planned[number].length_us
    late_us = begun_us - start_us
    return late_us if late_us < 0 else max(0, late_us - max(0, slack_us))


def _grid(own: _Round, job: int) -> Grid:
    assert own.epoch_us is not None, "the plan has begun"
    plan = own.plan
    planned = plan.iterations[job]
    throttled = any(one.throttle < 1 for one in planned)
    peak_bps = own.attempts[job].peak_bps or 0
    return Grid(
        epoch_us=own.epoch_us,
        period_us=plan.cycle_us,
        tolerance_us=_tolerance_us(plan, job),
        length_us=_length_us(plan, job),
        starts_us=[one.start_us for one in planned],
        paces_bps=[_pace_bps(one.throttle, peak_bps) for one in planned] if throttled and peak_bps else [],
    )


def _spines(planned: Sequence[PlannedIteration]) -> Mapping[str, tuple[int, ...]]:
    """Of an iteration's first operation that has a route; of several spines the one that carries most. Hosts
    without one in some iteration keep to the path of the job."""
    found: dict[str, list[int]] = {}
    for number, one in enumerate(planned):
        for route in (route for part in one.ranges for route in part.routes):
            mine = found.setdefault(route.source, [])
            if len(mine) == number:
                mine.append(max(route.spines, key=lambda spine: spine[1])[0])
    return {
        host: tuple(spines)
        for host, spines in found.items()
        if len(spines) == len(planned) and len(set(spines)) > 1
    }


def _pace_bps(throttle: float, peak_bps: int) -> int:
    """0: as fast as it goes."""
    return 0 if throttle >= 1 else max(1, int(throttle * peak_bps))
