"""From profiles to patterns: what a job reserves on its links while it communicates.

FORESIGHT Sec. III, "Simplifying the Network" (all spines as one logical link per leaf and
direction) and "Assigning Flow Paths" (flows that send at the same time are routed together and
keep their paths). A pattern is a longest stretch of an iteration without a pause in its traffic;
each flow reserves its peak rate for all of it, rounded up to the units that routing deals in. So
a job that passes timing alone can also be routed alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from rm.policies.foresight.demand import JobDemand, Links, Piece, Profile


class LogicalLink(NamedTuple):
    """One direction of all uplinks of a leaf taken as one, of that to one `spine`, or of a host's link."""

    name: str
    up: bool
    leaf: bool = True
    spine: int | None = None


@dataclass(frozen=True, slots=True)
class LeafFlow:
    """A flow of a pattern that crosses the spines: its number in the job, its leaves, its rate.

    `units` of a spine link are reserved for it.
    """

    flow: int
    source: str
    destination: str
    rate_bps: int
    units: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """Traffic without a pause: reserved loads during [start_us, end_us) of the iteration.

    `loads` are in units on leaves' links and in bit/s on hosts'; each is above zero. `host_bps` is
    what hosts' links really carry.
    """

    start_us: int
    end_us: int
    first_op: int
    last_op: int
    flows: tuple[LeafFlow, ...]
    loads: tuple[tuple[LogicalLink, int], ...]
    host_bps: tuple[tuple[LogicalLink, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """A profile as it is reserved; `fits`: alone it exceeds no link.

    One that does not fit is given all of each link that it touches: no rate of the profile helps,
    so nobody else should be slowed by it as well.
    """

    throttle: Fraction
    length_us: int
    patterns: tuple[Pattern, ...]
    fits: bool = True


def shapes_of(job: JobDemand, links: Links) -> tuple[Shape, ...]:
    """One shape per profile, in the order of the profiles."""
    return tuple(shape_of(profile, job, links) for profile in job.profiles)


def shape_of(profile: Profile, job: JobDemand, links: Links) -> Shape:
    """The patterns of one profile. Traffic that meets none of `links` is left out."""
    leaf_of = links.fabric.leaf_of if links.fabric is not None else {}
    leaves = {
        n: (leaf_of[a], leaf_of[b])
        for n, (a, b) in enumerate(job.flows)
        if a in leaf_of and b in leaf_of and leaf_of[a] != leaf_of[b]
    }
    seen = [
        p
        for p in profile.pieces
        if job.flows[p.flow][0] != job.flows[p.flow][1]
        and (p.flow in leaves or any(h in links.host_bps for h in job.flows[p.flow]))
    ]
    patterns = []
    for busy in _stretches(seen):
        flows: list[LeafFlow] = []
        loads: Counter[LogicalLink] = Counter()
        for flow, rate in sorted(_peaks(busy).items()):
            source, destination = job.flows[flow]
            for host, up in ((source, True), (destination, False)):
                if host in links.host_bps:
                    loads[LogicalLink(host, up, leaf=False)] += rate
            if flow in leaves:
                a, b = leaves[flow]
                units = links.units_of(rate)
                flows.append(LeafFlow(flow, a, b, rate, units))
                loads[LogicalLink(a, True)] += units
                loads[LogicalLink(b, False)] += units
        if loads:
            ops = [p.op for p in busy]
            patterns.append(
                Pattern(
                    min(p.start_us for p in busy),
                    max(p.end_us for p in busy),
                    min(ops),
                    max(ops),
                    tuple(flows),
                    tuple(sorted(loads.items())),
                    tuple((link, load) for link, load in sorted(loads.items()) if not link.leaf),
                )
            )
    shape = Shape(profile.throttle, profile.length_us, tuple(patterns))
    fits = all(load <= capacity(link, links) for p in patterns for link, load in p.loads)
    return shape if fits else _alone(shape, links)


def capacity(link: LogicalLink, links: Links) -> int:
    """In units for a leaf's link, in bit/s for a host's."""
    if link.spine is not None:
        return links.units
    return links.colours if link.leaf else links.host_bps[link.name]


def _alone(shape: Shape, links: Links) -> Shape:
    patterns = tuple(
        replace(p, loads=tuple((link, capacity(link, links)) for link, _ in p.loads)) for p in shape.patterns
    )
    return replace(shape, patterns=patterns, fits=False)


def _stretches(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Pieces in groups that overlap or touch in time; the parts of one operation stay together."""
    spans: dict[int, tuple[int, int]] = {}
    by_op: dict[int, list[Piece]] = {}
    for p in pieces:
        if p.rate_bps:
            low, high = spans.get(p.op, (p.start_us, p.end_us))
            spans[p.op] = min(low, p.start_us), max(high, p.end_us)
            by_op.setdefault(p.op, []).append(p)
    groups: list[list[Piece]] = []
    until = -1
    for op, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        if start > until:
            groups.append([])
        until = max(until, end)
        groups[-1] += by_op[op]
    return groups


def _peaks(pieces: Iterable[Piece]) -> Mapping[int, int]:
    """Each flow's highest rate; what one flow sends at the same time adds up."""
    steps: dict[int, Counter[int]] = {}
    for p in pieces:
        changes = steps.setdefault(p.flow, Counter())
        changes[p.start_us] += p.rate_bps
        changes[p.end_us] -= p.rate_bps
    peaks = {}
    for flow, changes in steps.items():
        level = peak = 0
        for at in sorted(changes):
            level += changes[at]
            peak = max(peak, level)
        peaks[flow] = peak
    return peaks
