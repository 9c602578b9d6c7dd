"""How many tasks of a shape each host takes now, for all hosts at once.

Within one pass the free resources only change where a job was reserved. `Capacities` follows a
`TrackedDict` through its `changed` list, so that a further job of a known shape costs a few
microseconds however many hosts there are; for any other mapping it counts anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rm.core.host import Host
from rm.core.snapshot import Snapshot, TrackedDict
from rm.policies.placement.steps.filters import Shape, admits, room
from rm.policies.placement.steps.gang import Ints


@dataclass(slots=True)
class _Known:
    caps: Ints
    admitted: tuple[int, ...]
    seen: int  # entries of `changed` that the capacities reflect


class Capacities:
    """Capacities under one snapshot. Hosts are numbered in inventory order."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.hosts: tuple[Host, ...] = tuple(snapshot.hosts.values())
        self.number = {host.name: i for i, host in enumerate(self.hosts)}
        zones = dict.fromkeys(h.zone for h in self.hosts)
        self.zones: tuple[str, ...] = tuple(
            sorted(zones, key=lambda z: (self.user_delay_us(z), z))
        )  # nearest to the user first
        rank = {z: i for i, z in enumerate(self.zones)}
        self.zone_of = np.array([rank[h.zone] for h in self.hosts], dtype=np.int64)
        self.members: tuple[Ints, ...] = tuple(
            np.flatnonzero(self.zone_of == i) for i in range(len(self.zones))
        )
        self._known: dict[Shape, _Known] = {}

    def user_delay_us(self, zone: str) -> int:
        """Delay from the users to a zone; an undeclared zone is farther than any other."""
        known = self.snapshot.zones.get(zone)
        return known.delay_us if known is not None else 1 << 60

    def of(self, shape: Shape) -> Ints:
        """Tasks each host takes; the array is the cache's own: do not write to it."""
        known = self._known.get(shape)
        free = self.snapshot.free
        log = free.changed if isinstance(free, TrackedDict) else None
        if known is None:
            admitted = tuple(i for i, h in enumerate(self.hosts) if admits(h, shape))
            known = _Known(np.zeros(len(self.hosts), dtype=np.int64), admitted, 0)
            self._known[shape] = known
            self._count_all(known, shape)
        elif log is None or len(log) - known.seen > len(self.hosts):
            self._count_all(known, shape)
        else:
            for name in log[known.seen :]:
                i = self.number.get(name)
                if i is not None and admits(self.hosts[i], shape):
                    known.caps[i] = room(self.hosts[i], free.get(name), shape)
        known.seen = len(log) if log is not None else 0
        return known.caps

    def _count_all(self, known: _Known, shape: Shape) -> None:
        free = self.snapshot.free
        for i in known.admitted:
            host = self.hosts[i]
            known.caps[i] = room(host, free.get(host.name), shape)


class LatestCapacities:
    """The capacities under the snapshot asked for last: a pass asks for one snapshot many times.

    Only a cache: the answers are those of `Capacities(snapshot)`.
    """

    def __init__(self) -> None:
        self._last: Capacities | None = None

    def under(self, snapshot: Snapshot) -> Capacities:
        if self._last is None or self._last.snapshot is not snapshot:
            self._last = Capacities(snapshot)
        return self._last
