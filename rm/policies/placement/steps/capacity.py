"""How many tasks of a shape each host takes now, for all hosts at once.

Within one pass the free resources only change where a job was reserved. `Capacities` follows a
`TrackedDict` through its `changed` list and counts with numpy, so that a job costs some ten
microseconds with 1,000 hosts; any other mapping is read anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rm.core.host import Host
from rm.core.snapshot import Snapshot, TrackedDict
from rm.policies.placement.steps.filters import UNLIMITED, Shape, admits, room
from rm.policies.placement.steps.gang import Ints

CPUS, MEM, GPUS = range(3)  # rows of the table of what is free


@dataclass(slots=True)
class _Known:
    admitted: NDArray[np.bool_]
    caps: Ints
    seen: int  # entries of `changed` that the capacities reflect; -1 = none yet


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
        self._schedulable = np.array([h.schedulable for h in self.hosts], dtype=bool)
        self._free = np.full((3, len(self.hosts)), -1, dtype=np.int64)
        gpus = max((len(h.gpus) for h in self.hosts), default=0)
        self.gpu_mem = np.full((len(self.hosts), gpus), -1, dtype=np.int64)
        self._free_seen = -1

    def user_delay_us(self, zone: str) -> int:
        """Delay from the users to a zone; an undeclared zone is farther than any other."""
        known = self.snapshot.zones.get(zone)
        return known.delay_us if known is not None else 1 << 60

    def of(self, shape: Shape) -> Ints:
        """Tasks each host takes; the array is the cache's own: do not write to it."""
        known = self._known.get(shape)
        if known is None:
            known = _Known(self._admitted(shape), np.zeros(len(self.hosts), dtype=np.int64), -1)
            self._known[shape] = known
        free = self.free_table()
        if known.seen != self._free_seen or self._free_seen < 0:
            known.caps = self._count(known.admitted, free, shape)
            known.seen = self._free_seen
        return known.caps

    def admitted(self, shape: Shape) -> NDArray[np.bool_]:
        """The hosts that pass the filters that do not depend on what is free."""
        self.of(shape)
        return self._known[shape].admitted

    def free_table(self) -> Ints:
        """Free CPUs, bytes of memory and GPUs of each host, in three rows; -1 = not known."""
        free = self.snapshot.free
        log = free.changed if isinstance(free, TrackedDict) else None
        if log is None or self._free_seen < 0:
            names = [h.name for h in self.hosts]
        else:
            names = log[self._free_seen :]
        for name in names:
            i, have = self.number.get(name), free.get(name)
            if i is not None and have is not None:
                self._free[:, i] = have.cpus, have.mem_bytes, len(have.gpus)
                self.gpu_mem[i] = -1
                for at, (_, size) in enumerate(have.gpu_mem):
                    self.gpu_mem[i, at] = size
        self._free_seen = len(log) if log is not None else -1
        return self._free

    def _admitted(self, shape: Shape) -> NDArray[np.bool_]:
        if shape.partition or shape.hosts_only or shape.hosts_excluded or shape.zone:
            return np.array([admits(h, shape) for h in self.hosts], dtype=bool)
        return self._schedulable

    def _count(self, admitted: NDArray[np.bool_], free: Ints, shape: Shape) -> Ints:
        if shape.exclusive or shape.gpu_type:  # what is free does not tell it all
            caps = np.zeros(len(self.hosts), dtype=np.int64)
            for i in np.flatnonzero(admitted):
                host = self.hosts[i]
                caps[i] = room(host, self.snapshot.free.get(host.name), shape)
            return caps
        tasks = np.where(admitted & (free[CPUS] >= 0), shape.tasks_per_host or UNLIMITED, 0)
        for have, need in self.left(shape):
            if need:
                tasks = np.minimum(tasks, have // need)
        return np.maximum(tasks, 0)

    def left(self, shape: Shape) -> tuple[tuple[Ints, int], ...]:
        """What each host has left of GPUs, CPUs and memory, and what a task needs of it."""
        free = self.free_table()
        gpus = free[GPUS]
        if shape.gpu_mem_bytes:
            gpus = (self.gpu_mem >= shape.gpu_mem_bytes).sum(axis=1)
        return (gpus, shape.gpus), (free[CPUS], shape.cpus), (free[MEM], shape.mem_bytes)


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
