"""Patterns that must be routed together: those that overlap in time and share a leaf's link.

FORESIGHT Sec. III, "Assigning Flow Paths", and Fig. 4: flows cannot change their paths while they
send, so overlaps chain patterns into ever larger merged ranges. Two patterns that share no
logical link never meet on a spine link either, so they are not merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rm.policies.foresight.patterns import LeafFlow, LogicalLink, Pattern
from rm.policies.foresight.timing import Slot


@dataclass(frozen=True, slots=True)
class Placed:
    """A pattern in time: number `pattern` of the slot number `slot`; times from the plan's start."""

    slot: int
    pattern: int
    job: int
    start_us: int
    end_us: int
    flows: tuple[LeafFlow, ...]
    fits: bool

    @property
    def nodes(self) -> set[LogicalLink]:
        """The leaves' links that it uses: the nodes of the bipartite graph."""
        ups = {LogicalLink(f.source, True) for f in self.flows}
        return ups | {LogicalLink(f.destination, False) for f in self.flows}


@dataclass(frozen=True, slots=True)
class MergedRange:
    """Patterns that overlap in a chain, by their starts."""

    patterns: tuple[Placed, ...]

    @property
    def start_us(self) -> int:
        return self.patterns[0].start_us

    @property
    def end_us(self) -> int:
        return max(p.end_us for p in self.patterns)

    @property
    def flows(self) -> dict[tuple[int, int], LeafFlow]:
        """By (job, flow), at the highest rate: the patterns of one job follow each other, so what
        a flow holds in one of them it may hold in all."""
        found: dict[tuple[int, int], LeafFlow] = {}
        for p in self.patterns:
            for f in p.flows:
                known = found.get((p.job, f.flow))
                if known is None or f.rate_bps > known.rate_bps:
                    found[p.job, f.flow] = f
        return found


def placed_patterns(slots: Sequence[Slot]) -> list[Placed]:
    """Every pattern that crosses the spines, where its slot puts it."""
    return [
        placed(number, slot, at, pattern)
        for number, slot in enumerate(slots)
        for at, pattern in enumerate(slot.shape.patterns)
        if pattern.flows
    ]


def placed(number: int, slot: Slot, at: int, pattern: Pattern) -> Placed:
    start, end = slot.start_us + pattern.start_us, slot.start_us + pattern.end_us
    return Placed(number, at, slot.job, start, end, pattern.flows, slot.shape.fits)


def merge_ranges(patterns: Iterable[Placed]) -> list[MergedRange]:
    """The merged ranges, by their starts."""
    ordered = sorted(patterns, key=lambda p: (p.start_us, p.slot, p.pattern))
    parent = list(range(len(ordered)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    busy: dict[LogicalLink, tuple[int, int]] = {}  # until when, and by whom
    for i, p in enumerate(ordered):
        for node in p.nodes:
            until, other = busy.get(node, (p.start_us, i))
            if until > p.start_us:
                parent[root(i)] = root(other)
            if p.end_us >= until:
                busy[node] = p.end_us, i
    groups: dict[int, list[Placed]] = {}
    for i, p in enumerate(ordered):
        groups.setdefault(root(i), []).append(p)
    return sorted(
        (MergedRange(tuple(group)) for group in groups.values()),
        key=lambda r: (r.start_us, r.patterns[0].slot, r.patterns[0].pattern),
    )
