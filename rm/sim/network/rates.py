"""Which rates change when streams begin and end, and what they become."""

from __future__ import annotations

from collections.abc import Iterable

from rm.sim.network.plan import Plan, Wire
from rm.sim.network.running import Current
from rm.sim.network.sharing import fill

FEW = 32  # streams; at most this many are solved with all that is connected to them
REMEMBERED = 4_096  # companies of streams whose rates are kept
LOWEST = -(1 << 62)  # below all priorities
EQUAL = 1e-11  # relative: rounding, when a stream is compared with its neighbours


class Rates:
    """Sets the `share` of the streams that changes concern.

    While few streams are under way, everything that is connected to a change over tight wires is filled
    anew; with `remember` the same plans under way together get what they got the last time,
    which pays for jobs in step, since they are few and meet again and again.

    Among many streams a change spreads only as far as it must: first those next to it share what the
    others leave them. Rates are max-min fair if they give each stream a bottleneck (a full wire where no
    stream of its priority gets more for its weight, and none of a lower one anything). So
    a stream that lacks one, or deprives a neighbour of one, is taken in, until all is right.
    """

    def __init__(self, remember: bool) -> None:
        self._remember = remember
        self._known: dict[frozenset[Plan], dict[Plan, float]] = {}
        self._mark = self._turn = 0

    def find(self, new: Iterable[Current], touched: Iterable[Wire], live: int) -> list[Current]:
        """The streams whose share may have changed.

        `new` are streams without rates, `touched` the wires that were or are tight and whose
        streams have changed, `live` is the number of all streams.
        """
        self._mark += 1
        region = _Region(self._mark)
        for current in new:
            if not current.of.suspended:
                region.add(current)
        for wire in touched:
            for current in wire.streams:
                region.add(current)
        if not region.wires:
            for current in region.streams:
                current.unlimited()
        elif live > FEW:
            self._spread(region)
        else:
            region.close()
            if self._remember:
                self._recall(region)
            else:
                fill(region.streams, region.wires)
        return region.streams

    def _recall(self, region: _Region) -> None:
        streams = region.streams
        company = frozenset([current.plan for current in streams])
        if len(company) < len(streams):  # a plan is under way twice
            fill(streams, region.wires)
            return
        rates = self._known.get(company)
        if rates is not None:
            for current in streams:
                share = current.share = rates[current.plan]
                current.level = share / current.weight
                current.held = True
                current.at = None
            return
        fill(streams, region.wires)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[company] = {current.plan: current.share for current in streams}

    def _spread(self, region: _Region) -> None:
        """Fill the region, and enlarge it until everybody in and beside it has a bottleneck."""
        while True:
            fill(region.streams, region.wires, others=True)
            lacking = self._lacking(region)
            if not lacking:
                return
            before = len(region.streams)
            for current in lacking:
                if current.mark != region.mark:
                    region.add(current)
                else:
                    for offender in _offenders(current, region.mark):
                        region.add(offender)
            if len(region.streams) == before:  # by rounding alone
                region.close()
                fill(region.streams, region.wires)
                return

    def _lacking(self, region: _Region) -> list[Current]:
        """The streams on the region's wires that are neither at their caps nor have a bottleneck."""
        self._turn += 1
        turn, mark = self._turn, region.mark
        for wire in region.wires:
            top = _top(wire)
            if top is not None:
                lowest, level = top
                level *= 1 - EQUAL
                for current in wire.streams:
                    if current.level >= level if current.priority == lowest else current.priority > lowest:
                        current.right = turn
                        current.at = wire
        lacking = []
        for wire in region.wires:
            for current in wire.streams:
                if current.right != turn:
                    current.right = turn
                    if current.share < current.cap * (1 - EQUAL) and (
                        current.mark == mark or not _held_elsewhere(current, mark)
                    ):
                        lacking.append(current)
        return lacking


class _Region:
    """Streams, and all tight wires that they use."""

    __slots__ = ("mark", "streams", "wires")

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.streams: list[Current] = []
        self.wires: list[Wire] = []

    def add(self, current: Current) -> None:
        mark = self.mark
        if current.mark != mark:
            current.mark = mark
            self.streams.append(current)
            for wire, _ in current.wires:
                if wire.tight and wire.mark != mark:
                    wire.mark = mark
                    self.wires.append(wire)

    def close(self) -> None:
        """Add everything that is connected to it."""
        mark, streams, wires = self.mark, self.streams, self.wires
        for wire in wires:  # which grows
            for current in wire.streams:
                if current.mark != mark:
                    current.mark = mark
                    streams.append(current)
                    for other, _ in current.wires:
                        if other.tight and other.mark != mark:
                            other.mark = mark
                            wires.append(other)


def _top(wire: Wire) -> tuple[int, float] | None:
    """The last priority that gets anything of a full wire, and the highest rate per weight in it;
    None for a wire that is not full."""
    used = top = 0.0
    lowest = LOWEST
    for current, pull in wire.streams.items():
        level = current.level
        if level > 0.0:
            used += pull * level
            if current.priority > lowest:
                lowest, top = current.priority, level
            elif level > top and current.priority == lowest:
                top = level
    return (lowest, top) if used >= wire.capacity * (1 - EQUAL) else None


def _held_elsewhere(current: Current, mark: int) -> bool:
    """Has it a bottleneck outside the region, where nothing has changed?"""
    if current.at is not None and current.at.mark != mark:
        return True
    level = current.level * (1 + EQUAL)
    for wire, _ in current.wires:
        if wire.tight and wire.mark != mark:
            top = _top(wire)
            if top is not None and (current.priority, level) >= top:
                current.at = wire
                return True
    return False


def _offenders(current: Current, mark: int) -> Iterable[Current]:
    """Streams outside the region that get more than this one where it is held back."""
    level = current.level * (1 + EQUAL)
    for wire, _ in current.wires:
        if wire.tight:
            for other in wire.streams:
                if other.mark != mark and (
                    other.share > 0.0
                    if other.priority > current.priority
                    else other.priority == current.priority and other.level > level
                ):
                    yield other
