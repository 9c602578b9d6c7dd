"""Which hosts are being tested, over all meshes: a host takes part in one test that fills its link, or in
several that do not; and the tests that leave a leaf at once are no more than one of its uplinks carries."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rm.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Crossing:
    """What a test sends at most over an uplink of each leaf that it leaves, and what an uplink carries."""

    leaves: frozenset[str] = frozenset()
    bps: int = 0
    uplink_bps: int = 0


NONE = Crossing()


class Bookings:
    """Both hosts of a test are taken together or not at all, so that nobody waits for ever. While a test
    waits to have a host alone, no further test begins to share that host. A test takes uplinks before hosts,
    so that it keeps nobody from its hosts while it waits for uplinks; uplinks are given in the order of
    asking."""

    def __init__(self) -> None:
        self._alone: set[str] = set()
        self._sharing: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self._crossing_bps: Counter[str] = Counter()  # of a leaf
        self._line: dict[int, Crossing] = {}  # who waits for uplinks, in turn
        self._next_place = 0
        self._freed = threading.Condition()

    @contextmanager
    def both(self, a: str, b: str, shared: bool = False, crossing: Crossing = NONE) -> Iterator[None]:
        """`shared`: others that share may test the hosts meanwhile."""
        hosts = (a, b)
        with self._freed:
            if shared:
                self._freed.wait_for(lambda: not any(h in self._alone or self._wanted[h] for h in hosts))
                self._sharing.update(hosts)
            else:
                self._cross(crossing)
                self._wanted.update(hosts)
                self._freed.wait_for(lambda: not any(h in self._alone or self._sharing[h] for h in hosts))
                self._wanted.subtract(hosts)
                self._alone.update(hosts)
        try:
            yield
        finally:
            with self._freed:
                if shared:
                    self._sharing.subtract(hosts)
                else:
                    self._alone.difference_update(hosts)
                    self._crossing_bps.subtract(dict.fromkeys(crossing.leaves, crossing.bps))
                self._freed.notify_all()

    def _cross(self, crossing: Crossing) -> None:
        """Take the uplinks, once there is room and nobody waits longer for one of them."""
        place = self._next_place
        self._next_place += 1
        self._line[place] = crossing
        self._freed.wait_for(lambda: all(self._has_room(leaf, place) for leaf in crossing.leaves))
        del self._line[place]
        self._crossing_bps.update(dict.fromkeys(crossing.leaves, crossing.bps))
        self._freed.notify_all()  # who stood behind may go, too

    def _has_room(self, leaf: str, place: int) -> bool:
        first = next(at for at, one in self._line.items() if leaf in one.leaves)
        asked, taken_bps = self._line[place], self._crossing_bps[leaf]
        return first == place and (not taken_bps or taken_bps + asked.bps <= asked.uplink_bps)
