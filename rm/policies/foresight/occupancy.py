"""What is reserved on each logical link over time, and the least delay at which more fits.

FORESIGHT Alg. 1, lines 11 to 13. Delays are exact: a load [a, b) of an iteration and a reserved
stretch [c, e) that it does not fit beside forbid the delays between c - b and e - a, so the
search jumps from one forbidden stretch to the end of the next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from rm.policies.foresight.patterns import LogicalLink

Load = tuple[LogicalLink, int, int, int]
"""(link, start, end, load): the link carries `load` during [start, end)."""


class Reserved:
    """The load of one link as a step function: `levels[i]` from `times[i]` to `times[i + 1]`."""

    __slots__ = ("levels", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.levels: list[int] = []

    def add(self, start: int, end: int, load: int) -> None:
        first, last = self._cut(start), self._cut(end)
        for i in range(first, last):
            self.levels[i] += load

    def blocked_until(self, start: int, end: int, room: int) -> int | None:
        """The end of the last stretch within [start, end) with a level above `room`; None = none."""
        times, levels = self.times, self.levels
        low = max(bisect_right(times, start) - 1, 0)
        for i in range(bisect_left(times, end) - 1, low - 1, -1):
            if levels[i] > room and times[i + 1] > start:
                return times[i + 1]
        return None

    def peak(self, start: int, end: int) -> int:
        """The highest level within [start, end)."""
        low = max(bisect_right(self.times, start) - 1, 0)
        return max(self.levels[low : bisect_left(self.times, end)], default=0)

    def _cut(self, at: int) -> int:
        """Index of the step that begins at `at`."""
        i = bisect_left(self.times, at)
        if i == len(self.times) or self.times[i] != at:
            self.times.insert(i, at)
            self.levels.insert(i, self.levels[i - 1] if i else 0)
        return i


class Occupancy:
    """Reservations on all links; `capacity` gives each link's."""

    def __init__(self, capacity: Callable[[LogicalLink], int]) -> None:
        self._capacity = capacity
        self._links: dict[LogicalLink, Reserved] = {}

    def reserve(self, loads: Iterable[Load], shift: int = 0) -> None:
        for link, start, end, load in loads:
            self._links.setdefault(link, Reserved()).add(start + shift, end + shift, load)

    def least_start(self, loads: Iterable[Load], ready: int) -> int:
        """The least shift >= `ready` at which each load fits beside what is reserved."""
        wanted = [
            (self._links[link], start, end, self._capacity(link) - load)
            for link, start, end, load in loads
            if link in self._links
        ]
        shift, settled, at = ready, 0, 0
        while settled < len(wanted):
            reserved, start, end, room = wanted[at]
            until = reserved.blocked_until(start + shift, end + shift, room)
            if until is None:
                settled += 1
            else:
                shift, settled = until - start, 0
                continue
            at = (at + 1) % len(wanted)
        return shift

    def peak(self, link: LogicalLink, start: int, end: int) -> int:
        return self._links[link].peak(start, end) if link in self._links else 0
