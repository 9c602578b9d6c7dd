"""How long iterations take on shared links, with a plan or without: a small fluid model.

It is the pure part of a guard: what a policy may know without a simulator. A job moves through
its patterns at the pace of its slowest flow; rates are max-min fair on every link; flows
without a route keep the spine that a hash gave their connection (ECMP), and the result is the
mean over several such draws.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm.core.model.network.routes import CommPlan, PlannedIteration
from rm.policies.foresight.demand import JobDemand, Links
from rm.policies.foresight.patterns import Pattern, Shape, shapes_of

DRAWS = 4
EPSILON = 1e-9

Wire = tuple[str, bool, int]
"""A host's link (name, up, -1) or a leaf's link to one spine (leaf, up, spine)."""

Stream = tuple[float, tuple[Wire, ...]]
"""(highest rate in bit/s, the wires that it loads)"""


def mean_iteration_us(
    jobs: Sequence[JobDemand], links: Links, plan: CommPlan | None = None, draws: int = DRAWS
) -> float:
    """Mean over all iterations of all jobs, waiting included. A contention-free plan goes by itself."""
    if plan is not None and plan.contention_free:
        return float(plan.mean_iteration_us)
    routed = plan is not None and any(i.ranges for p in plan.iterations.values() for i in p)
    count = draws if links.fabric is not None and not routed else 1
    return sum(_Model(jobs, links, plan, draw).run() for draw in range(count)) / count


def max_min(streams: Sequence[Stream], capacity: Mapping[Wire, float]) -> list[float]:
    """Max-min fair rates: each stream has its highest rate, or a wire that is full on which
    nobody has more."""
    rates = [cap for cap, _ in streams]
    left = dict(capacity)
    users: dict[Wire, set[int]] = {}
    asked: dict[Wire, float] = {}
    for i, (cap, wires) in enumerate(streams):
        for wire in wires:
            users.setdefault(wire, set()).add(i)
            asked[wire] = asked.get(wire, 0.0) + cap
    tight = {w for w in users if asked[w] > left[w] * (1 + EPSILON)}
    open_streams = {i for w in tight for i in users[w]}
    for wire in tight:
        users[wire] &= open_streams
    while open_streams:
        fair = {w: left[w] / len(users[w]) for w in tight if users[w]}
        level = min(fair.values(), default=float("inf"))
        low = {i for i in open_streams if streams[i][0] <= level}
        settled = low or {i for w, share in fair.items() if share <= level * (1 + EPSILON) for i in users[w]}
        for i in sorted(settled):
            rates[i] = min(streams[i][0], level)
            for wire in streams[i][1]:
                if wire in tight:
                    users[wire].discard(i)
                    left[wire] = max(0.0, left[wire] - rates[i])
        open_streams -= settled
    return rates


@dataclass(slots=True)
class _Runner:
    """One job on its way: in `shape`, `left_us` (at full pace) before the next change.

    `step` counts pauses and patterns: 2n is the pause before pattern n, -1 the plan's delay.
    """

    job: JobDemand
    iteration: int
    began_us: float
    shape: Shape
    planned: PlannedIteration | None
    step: int
    left_us: float
    pace: float = 1.0

    @property
    def pattern(self) -> Pattern | None:
        return self.shape.patterns[self.step // 2] if self.step % 2 and self.step > 0 else None


class _Model:
    """All jobs from the plan's beginning to the end of their last iterations."""

    def __init__(self, jobs: Sequence[JobDemand], links: Links, plan: CommPlan | None, draw: int) -> None:
        self.links = links
        self.plan = plan
        self.draw = draw
        self.jobs = sorted(jobs, key=lambda j: j.job)
        self.shapes = {job.job: shapes_of(job, links) for job in self.jobs}

    def run(self) -> float:
        now, total, count = 0.0, 0.0, 0
        running = [self._begin(job, 0, now) for job in self.jobs]
        while running:
            self._set_paces(running)
            passed = min(r.left_us / r.pace for r in running)
            now += passed
            still = []
            for r in running:
                r.left_us -= passed * r.pace
                ended = r.left_us <= EPSILON * r.shape.length_us and self._next(r)
                if not ended:
                    still.append(r)
                    continue
                total, count = total + now - r.began_us, count + 1
                if r.iteration + 1 < r.job.iterations:
                    still.append(self._begin(r.job, r.iteration + 1, now))
            running = still
        return total / count

    def _begin(self, job: JobDemand, iteration: int, now: float) -> _Runner:
        planned = self.plan.at(job.job, iteration) if self.plan is not None else None
        shapes = self.shapes[job.job]
        shape, delay = shapes[0], 0
        if planned is not None:
            shape = next(s for s in shapes if float(s.throttle) == planned.throttle)
            delay = planned.delay_us
        return _Runner(job, iteration, now, shape, planned, -1, float(delay))

    def _next(self, r: _Runner) -> bool:
        """On to the next pause or pattern that takes time; True when the iteration is over."""
        patterns = r.shape.patterns
        while r.left_us <= EPSILON * r.shape.length_us:
            r.step += 1
            at = r.step // 2
            if at > len(patterns) or (at == len(patterns) and r.step % 2):
                return True
            before = patterns[at - 1].end_us if at else 0
            if r.step % 2:
                r.left_us = float(patterns[at].end_us - patterns[at].start_us)
            else:
                until = patterns[at].start_us if at < len(patterns) else r.shape.length_us
                r.left_us = float(until - before)
        return False

    def _set_paces(self, running: Iterable[_Runner]) -> None:
        streams: list[Stream] = []
        owners: list[_Runner] = []
        for r in running:
            r.pace = 1.0
            if r.pattern is not None:
                mine = self._streams(r, r.pattern)
                streams += mine
                owners += [r] * len(mine)
        wires = {w for _, path in streams for w in path}
        rates = max_min(streams, {w: self._capacity(w) for w in wires})
        for r, (cap, _), rate in zip(owners, streams, rates, strict=True):
            r.pace = min(r.pace, rate / cap)

    def _capacity(self, wire: Wire) -> float:
        name, _, spine = wire
        if spine < 0:
            return float(self.links.host_bps[name])
        assert self.links.fabric is not None
        return float(self.links.fabric.uplink_bps)

    def _streams(self, r: _Runner, pattern: Pattern) -> list[Stream]:
        streams: list[Stream] = [
            (float(load), ((link.name, link.up, -1),)) for link, load in pattern.host_bps
        ]
        routes = r.planned.range_of(pattern.first_op) if r.planned is not None else None
        for f in pattern.flows:
            route = routes.route(*r.job.flows[f.flow]) if routes is not None else None
            shares = route.shares if route is not None else ((self._hashed(r.job, f.flow), 1.0),)
            for spine, share in shares:
                streams.append((f.rate_bps * share, ((f.source, True, spine), (f.destination, False, spine))))
        return streams

    def _hashed(self, job: JobDemand, flow: int) -> int:
        assert self.links.fabric is not None
        text = f"{self.draw} {job.job} {job.flows[flow]}"
        return zlib.crc32(text.encode()) % self.links.fabric.spines
