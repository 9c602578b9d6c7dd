"""Spine units reserved in time: a flow is coloured against what really overlaps it, no more.

Beyond the paper. Merging whole chains (Sec. III, Fig. 4) asks that all patterns of a chain be
coloured as if all sent at once. Here two flows conflict only where they share a leaf's link at
the same time. Where no colour is free for a flow, two colours are exchanged on all flows that
conflict in a chain from there (the Kempe chain; with times it may branch, so this may fail where
an exchange within one merged range cannot). Then the chain of patterns is coloured anew as one
merged range, which succeeds whenever its greatest degree allows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rm.policies.foresight.demand import Links
from rm.policies.foresight.merging import MergedRange, Placed
from rm.policies.foresight.patterns import LeafFlow, LogicalLink
from rm.policies.foresight.routing import Spines, fill, narrowest, route_flows, spines_of

CHAIN_MAX = 512  # longest chain of flows that one exchange may recolour


class Held:
    """The units that one flow of a placed pattern holds, as a bit mask of colours."""

    __slots__ = ("end_us", "flow", "mask", "nodes", "pattern", "start_us")

    def __init__(self, pattern: Placed, flow: LeafFlow, mask: int = 0) -> None:
        self.pattern = pattern
        self.flow = flow
        self.start_us, self.end_us = pattern.start_us, pattern.end_us
        self.nodes = (LogicalLink(flow.source, True), LogicalLink(flow.destination, False))
        self.mask = mask


class _Lane:
    """Those who hold units of one link, by their starts."""

    __slots__ = ("held", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.held: list[Held] = []

    def add(self, held: Held) -> None:
        at = bisect_right(self.starts, held.start_us)
        self.starts.insert(at, held.start_us)
        self.held.insert(at, held)

    def remove(self, held: Held) -> None:
        at = self.held.index(held, bisect_left(self.starts, held.start_us))
        del self.starts[at], self.held[at]


class SpineBook:
    """Who holds which units of which leaf's links, and when.

    `merged` colours whole chains of overlapping patterns only, which is the paper's rule.
    """

    def __init__(self, links: Links, merged: bool = False) -> None:
        self._links = links
        self._merged = merged
        self._all = (1 << links.colours) - 1
        self._lanes: dict[LogicalLink, _Lane] = {}
        self._longest_us = 0
        self._by_pattern: dict[tuple[int, int], list[Held]] = {}

    def insert(self, patterns: Sequence[Placed]) -> int | None:
        """Reserve all patterns of one iteration, or nothing.

        Returns None when done; otherwise by how much later (microseconds) to try again: when the
        first of those ends that overlap the pattern which did not fit.
        """
        before: dict[Held, int] = {}
        for number, pattern in enumerate(patterns):
            if not self._insert(pattern, before):
                for held, mask in before.items():
                    held.mask = mask
                for done in patterns[: number + 1]:
                    self._remove(done)
                return self._wait(pattern)
        return None

    def spines(self, slot: int, pattern: int) -> tuple[Spines, ...]:
        """The subflows of each flow of a reserved pattern."""
        held = self._by_pattern[slot, pattern]
        if not held[0].pattern.fits:
            return tuple(route_flows([h.flow for h in held], self._links, subflows=True)[0])
        return tuple(spines_of(h.mask, self._links) for h in held)

    # -- one pattern ---------------------------------------------------------------------------

    def _insert(self, pattern: Placed, before: dict[Held, int]) -> bool:
        """Reserve one pattern; `before` gets the former masks of those that had to change."""
        mine = [Held(pattern, flow) for flow in pattern.flows]
        self._by_pattern[pattern.slot, pattern.pattern] = mine
        self._longest_us = max(self._longest_us, pattern.end_us - pattern.start_us)
        for held in mine:
            for node in held.nodes:
                self._lanes.setdefault(node, _Lane()).add(held)
        if not pattern.fits:  # timing has given it its links alone
            for held in mine:
                held.mask = self._all
            return True
        changed: dict[Held, int] = {}
        largest_first = sorted(mine, key=lambda h: -h.flow.units)
        if not self._merged and all(self._colour(held, changed) for held in largest_first):
            _note(before, changed)
            return True
        for held, mask in changed.items():
            held.mask = mask
        chain = self._chain(mine)
        flows = MergedRange(tuple(h.pattern for h in chain)).flows
        masks = fill(list(flows.values()), self._links)
        if masks is None:
            return False
        by_flow = dict(zip(flows, masks, strict=True))
        _note(before, {h: h.mask for h in chain})
        for held in chain:
            mask = by_flow[held.pattern.job, held.flow.flow]
            held.mask = sum(1 << bit for bit in islice(_bits(mask), held.flow.units))
        return True

    def _colour(self, held: Held, changed: dict[Held, int]) -> bool:
        """Give one flow its units, on as few spines as are free."""
        changed.setdefault(held, 0)
        left = held.flow.units
        while left:
            free = self._free(held, held.nodes[0]) & self._free(held, held.nodes[1])
            if not free:
                if not self._exchange(held, changed):
                    return False
                continue
            block, room = narrowest(free, left, self._links)
            for bit in islice(_bits(free & block), min(left, room)):
                held.mask |= 1 << bit
            left -= min(left, room)
        return True

    def _exchange(self, held: Held, changed: dict[Held, int]) -> bool:
        """Free at both ends of a flow a colour that is free at one end, by exchanging two."""
        here, there = (self._free(held, node) for node in held.nodes)
        for a in _bits(here):
            for b in _bits(there):
                for taken, free, end in ((a, b, 1), (b, a, 0)):
                    chain = self._kempe(held, held.nodes[end], taken, free)
                    if chain is not None:
                        both = 1 << taken | 1 << free
                        for other in chain:
                            changed.setdefault(other, other.mask)
                            if (other.mask & both) not in (0, both):
                                other.mask ^= both
                        return True
        return False

    def _kempe(self, held: Held, node: LogicalLink, taken: int, free: int) -> set[Held] | None:
        """All flows that must exchange the colours so that `taken` becomes free for `held` at `node`.

        None when that would take `taken` at its other end, or when it does not end.
        """
        both = 1 << taken | 1 << free
        chain: set[Held] = set()
        border = self._overlapping(held, node, 1 << taken)
        other = held.nodes[0] if node is held.nodes[1] else held.nodes[1]
        while border:
            one = border.pop()
            if one in chain:
                continue
            if one is held or len(chain) == CHAIN_MAX or not one.pattern.fits:
                return None
            meets = other in one.nodes and one.start_us < held.end_us and held.start_us < one.end_us
            if meets and one.mask & both == 1 << free:
                return None
            chain.add(one)
            for end in one.nodes:
                border += self._overlapping(one, end, both)
        return chain

    # -- what overlaps -------------------------------------------------------------------------

    def _overlapping(self, held: Held, node: LogicalLink, mask: int = -1) -> list[Held]:
        """Those on a node at the same time as `held`, without itself, that hold some of `mask`."""
        lane = self._lanes.get(node)
        if lane is None:
            return []
        first = bisect_left(lane.starts, held.start_us - self._longest_us)
        there = lane.held[first : bisect_left(lane.starts, held.end_us)]
        since = held.start_us
        return [h for h in there if h.mask & mask and h.end_us > since and h is not held]

    def _free(self, held: Held, node: LogicalLink) -> int:
        taken = held.mask
        for other in self._overlapping(held, node):
            taken |= other.mask
        return self._all & ~taken

    def _chain(self, mine: Iterable[Held]) -> list[Held]:
        """All flows of the merged range of these flows, in the order of their starts."""
        found: dict[tuple[int, int], list[Held]] = {}
        border = [mine]
        while border:
            for held in border.pop():
                for node in held.nodes:
                    for other in self._overlapping(held, node):
                        key = other.pattern.slot, other.pattern.pattern
                        if key not in found:
                            found[key] = self._by_pattern[key]
                            border.append(found[key])
        for held in mine:
            found.setdefault((held.pattern.slot, held.pattern.pattern), list(mine))
        return [h for key in sorted(found) for h in found[key]]

    def _wait(self, pattern: Placed) -> int:
        probes = [Held(pattern, flow) for flow in pattern.flows]
        ends = [o.end_us for h in probes for node in h.nodes for o in self._overlapping(h, node)]
        assert ends, "a pattern that fits its links alone can be routed alone"
        return min(ends) - pattern.start_us

    def _remove(self, pattern: Placed) -> None:
        for held in self._by_pattern.pop((pattern.slot, pattern.pattern), ()):
            for node in held.nodes:
                self._lanes[node].remove(held)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _note(before: dict[Held, int], changed: dict[Held, int]) -> None:
    for held, mask in changed.items():
        before.setdefault(held, mask)
