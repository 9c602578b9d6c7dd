"""How many tasks of a shape each host takes now, for all hosts at once.

Within one pass the free resources only change where a job was reserved, and from pass to pass where
jobs began and ended. `Capacities` follows a `TrackedDict` through its `changed` list, finds the
entries that differ from those of the snapshot before, and counts with numpy, so that a job costs
some ten microseconds with 1,000 hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from operator import attrgetter, is_, is_not

import numpy as np
from numpy.typing import NDArray

from rm.core.jobs.room import UNLIMITED, admits
from rm.core.model.asked.demand import Shape
from rm.core.model.asked.gpu_type import is_of_type
from rm.core.model.host import Host
from rm.core.model.reasons import Reason
from rm.core.model.snapshot import Free, Snapshot, TrackedDict
from rm.policies.placement.steps.gang import Ints

CPUS, MEM, GPUS = range(3)  # rows of the table of what is free
EQUIPMENT = attrgetter("name", "zone", "cpus", "mem_bytes", "gpus")
SHAPES_MAX = 1_000  # shapes of which it is kept which hosts they admit
Mask = NDArray[np.bool_]


class Capacities:
    """Capacities under one snapshot. Hosts are numbered in inventory order, and the GPUs of each
    host by their position in its list: tables of GPUs are hosts x the most GPUs of a host."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.hosts: tuple[Host, ...] = tuple(snapshot.hosts.values())
        self.number = {host.name: i for i, host in enumerate(self.hosts)}
        self._zones = dict(snapshot.zones)
        zones = dict.fromkeys(h.zone for h in self.hosts)
        self.zones: tuple[str, ...] = tuple(
            sorted(zones, key=lambda z: (self.user_delay_us(z), z))
        )  # nearest to the user first
        rank = {z: i for i, z in enumerate(self.zones)}
        self.zone_of = np.array([rank[h.zone] for h in self.hosts], dtype=np.int64)
        self.members: tuple[Ints, ...] = tuple(
            np.flatnonzero(self.zone_of == i) for i in range(len(self.zones))
        )
        self.members_of = dict(zip(self.zones, self.members, strict=True))
        self.names_of = {z: tuple(self.hosts[i].name for i in mine) for z, mine in self.members_of.items()}
        self.delays_us = {z: float(self.user_delay_us(z)) for z in self.zones}
        self._by_zone = np.argsort(self.zone_of, kind="stable")
        self._zone_starts = np.searchsorted(self.zone_of[self._by_zone], np.arange(len(self.zones)))
        self.total = np.array(
            [(h.cpus, h.mem_bytes, len(h.gpus)) for h in self.hosts], dtype=np.int64
        ).T.reshape(3, -1)  # rows as of `free_table`
        self._schedulable = np.array([h.schedulable for h in self.hosts], dtype=bool)
        self.gpus_max = max((len(h.gpus) for h in self.hosts), default=0)
        self._of_type: dict[str, Mask] = {}
        self._admits: dict[Shape, Mask] = {}  # by filters
        self._shut: dict[Shape, Reason] = {}  # by filters
        self._most: dict[Shape, Ints] = {}  # tasks that each host may take, whatever is free there
        self._caps: dict[Shape, tuple[int, Ints]] = {}  # with the version of the tables
        self._free = np.full((3, len(self.hosts)), -1, dtype=np.int64)
        self._idle = np.zeros((len(self.hosts), self.gpus_max), dtype=bool)
        self._gpu_mem = np.full((len(self.hosts), self.gpus_max), -1, dtype=np.int64)
        self._read: list[Free | None] = [None] * len(self.hosts)  # what the tables were read from
        self._gpus_unread: dict[int, None] = {}  # of which hosts the tables of GPUs do not reflect that yet
        self._log_seen = -1  # entries of `changed` that they reflect; -1 = not yet this snapshot's
        self._version = 0

    def turned_to(self, snapshot: Snapshot) -> Capacities:
        """The capacities under another snapshot; those of this one stay as they are.

        What is known of the hosts is kept where they are the very same, the tables of what they have where
        that is the same, and what was read of their free resources where those entries are.
        """
        hosts = tuple(snapshot.hosts.values())
        same = len(hosts) == len(self.hosts) and all(map(is_, hosts, self.hosts))
        if snapshot.zones != self._zones or not (same or equipped_alike(hosts, self.hosts)):
            return Capacities(snapshot)
        other = object.__new__(Capacities)
        vars(other).update(vars(self), snapshot=snapshot)
        if same and len(self._caps) < SHAPES_MAX:
            other._caps = dict(self._caps)  # of which each goes when an entry that is free has changed
        else:
            other._caps = {}
        if not same:
            other.hosts, other._admits, other._shut, other._most = hosts, {}, {}, {}
            other._schedulable = np.array([h.schedulable for h in hosts], dtype=bool)
        other._free, other._idle, other._gpu_mem = self._free.copy(), self._idle.copy(), self._gpu_mem.copy()
        other._read, other._log_seen = list(self._read), -1
        other._gpus_unread = dict(self._gpus_unread)
        return other

    @cached_property
    def gpu_index(self) -> Ints:
        """The index of the GPU at each position; -1 = there is none."""
        found = np.full((len(self.hosts), self.gpus_max), -1, dtype=np.int64)
        for i, host in enumerate(self.hosts):
            found[i, : len(host.gpus)] = [gpu.index for gpu in host.gpus]
        return found

    @cached_property
    def gpu_total(self) -> Ints:
        """Bytes of memory of the GPU at each position."""
        found = np.zeros((len(self.hosts), self.gpus_max), dtype=np.int64)
        for i, host in enumerate(self.hosts):
            found[i, : len(host.gpus)] = [gpu.mem_bytes for gpu in host.gpus]
        return found

    @cached_property
    def _positions(self) -> list[dict[int, int]]:
        return [{gpu.index: at for at, gpu in enumerate(host.gpus)} for host in self.hosts]

    def user_delay_us(self, zone: str) -> int:
        """Delay from the users to a zone; an undeclared zone is farther than any other."""
        known = self._zones.get(zone)
        return known.delay_us if known is not None else 1 << 60

    def in_zones(self, caps: Ints) -> dict[str, int]:
        """Tasks that the hosts of each zone take together, nearest zone first."""
        sums = np.add.reduceat(caps[self._by_zone], self._zone_starts) if len(caps) else caps
        return dict(zip(self.zones, sums.tolist(), strict=True))

    def position(self, host: int, gpu: int) -> int | None:
        """The position of the GPU of this index on the host; None if it has none such."""
        return self._positions[host].get(gpu)

    def of(self, shape: Shape) -> Ints:
        """Tasks each host takes; the array is the cache's own: do not write to it."""
        free = self.free_table()
        version, caps = self._caps.get(shape, (-1, None))
        if caps is None or version != self._version:
            caps = self._count(free, shape)
            self._caps[shape] = self._version, caps
        return caps

    def admitted(self, shape: Shape) -> Mask:
        """The hosts that pass the filters that do not depend on what is free; do not write to it."""
        names = shape.partitions or shape.hosts_only or shape.hosts_excluded or shape.zone
        if not (names or shape.foreign or shape.closed or shape.features or shape.container):
            return self._schedulable
        filters = shape.filters
        if filters not in self._admits:
            if len(self._admits) >= SHAPES_MAX:
                self._admits.clear()
            self._admits[filters] = np.array([admits(h, shape) for h in self.hosts], dtype=bool)
        return self._admits[filters]

    def shut(self, shape: Shape, why: Callable[[Shape], Reason]) -> Reason:
        """What `why` says of a shape that no host is admitted to. It says the same whatever the quantities
        are, and is asked once for all of them."""
        filters = shape.filters
        if filters not in self._shut:
            if len(self._shut) >= SHAPES_MAX:
                self._shut.clear()
            self._shut[filters] = why(filters)
        return self._shut[filters]

    def free_table(self) -> Ints:
        """Free CPUs, bytes of memory and GPUs of each host, in three rows; -1 = not known."""
        free = self.snapshot.free
        log = free.changed if isinstance(free, TrackedDict) else None
        if log is not None and self._log_seen == len(log):
            return self._free
        if log is None or self._log_seen < 0:
            now = [*map(free.get, self.number)]
            for i in [*compress(range(len(now)), map(is_not, now, self._read))]:
                self._note(i, now[i])
        else:
            for name in log[self._log_seen :]:
                number = self.number.get(name)
                if number is not None:
                    self._note(number, free.get(name))
        self._log_seen = len(log) if log is not None else -1
        return self._free

    def usable(self, shape: Shape) -> Mask:
        """The GPUs that tasks of this shape may use now: idle or shareable, and of its type."""
        self._follow_gpus()
        need = shape.gpu_mem_bytes
        mask = self._gpu_mem >= need if need else self._idle
        return mask & self._typed(shape.gpu_type) if shape.gpu_type else mask

    def idle(self) -> Mask:
        """The GPUs that no job has or shares."""
        self._follow_gpus()
        return self._idle

    def gpu_mem(self) -> Ints:
        """Bytes that jobs which share GPUs may still take of each; -1 = none, it is not to be shared."""
        self._follow_gpus()
        return self._gpu_mem

    def left(self, shape: Shape) -> tuple[tuple[Ints, int], ...]:
        """What each host has left of GPUs, CPUs and memory, and what a single task needs of it."""
        free = self.free_table()
        gpus = free[GPUS]
        if shape.gpu_mem_bytes or shape.gpu_type:
            gpus = np.add.reduce(self.usable(shape), axis=1)
        return (gpus, shape.least_gpus), (free[CPUS], shape.cpus_per_task), (free[MEM], shape.least_mem_bytes)

    def lacking(self, shape: Shape) -> Iterator[tuple[Ints, Mask]]:
        """Which hosts lack something that a single task needs, by what: whole hosts, GPUs, CPUs, memory; and
        what each has of it, of which the most is the closest."""
        free, whole = self.free_table(), self._whole
        if shape.exclusive:
            touched: Mask = np.logical_or.reduce(free < whole, axis=0)
            yield whole[CPUS], touched
        for have, need in self.left(shape):
            if need:
                yield have, have < need
        if shape.mem_all:
            yield free[MEM], free[MEM] < whole[MEM]

    @cached_property
    def _whole(self) -> Ints:
        """CPUs, bytes of memory and GPUs of each host, in three rows."""
        found = np.zeros((3, len(self.hosts)), dtype=np.int64)
        for i, host in enumerate(self.hosts):
            found[:, i] = host.cpus, host.mem_bytes, len(host.gpus)
        return found

    def _note(self, i: int, have: Free | None) -> None:
        self._read[i] = have
        self._version += 1
        self._gpus_unread[i] = None
        table = self._free
        if have is None:
            table[:, i] = -1
            return
        table[CPUS, i], table[MEM, i], table[GPUS, i] = have.cpus, have.mem_bytes, len(have.gpus)

    def _follow_gpus(self) -> None:
        """Let the tables of GPUs reflect what is free: most shapes need only to know how many are idle."""
        self.free_table()
        for i in self._gpus_unread:
            self._idle[i] = False
            self._gpu_mem[i] = -1
            have, positions = self._read[i], self._positions[i]
            if have is None:
                continue
            for gpu in have.gpus:
                if (at := positions.get(gpu)) is not None:
                    self._idle[i, at] = True
            for gpu, size in have.gpu_mem:
                if (at := positions.get(gpu)) is not None:
                    self._gpu_mem[i, at] = size
        self._gpus_unread.clear()

    def _typed(self, gpu_type: str) -> Mask:
        if gpu_type not in self._of_type:
            mask = np.zeros((len(self.hosts), self.gpus_max), dtype=bool)
            for i, host in enumerate(self.hosts):
                for at, gpu in enumerate(host.gpus):
                    mask[i, at] = is_of_type(gpu.model, gpu_type)
            self._of_type[gpu_type] = mask
        return self._of_type[gpu_type]

    def _most_of(self, shape: Shape) -> Ints:
        """Tasks that each host may take, whatever is free there; do not write to it."""
        most = self._most.get(shape)
        if most is None:
            if len(self._most) >= SHAPES_MAX:
                self._most.clear()
            most = self._most[shape] = self.admitted(shape) * np.int64(shape.tasks_per_host or UNLIMITED)
        return most

    def _count(self, free: Ints, shape: Shape) -> Ints:
        tasks = self._most_of(shape)
        # numpy's `where` takes three times as long for few hosts
        if not shape.cpus_per_task:  # else a host of which nothing is known has too few of them
            tasks = tasks * (free[CPUS] >= 0)
        if shape.exclusive:
            all_free = (free[CPUS] >= self.total[CPUS]) & (free[MEM] >= self.total[MEM])
            tasks = tasks * (all_free & (free[GPUS] == self.total[GPUS]))
        if shape.mem_all:
            tasks = tasks * (free[MEM] >= self.total[MEM])
        per_host = (shape.gpus_per_host, 0, shape.mem_bytes_per_host)  # in the order of `left`
        for (have, need), once in zip(self.left(shape), per_host, strict=True):
            if once:
                tasks = tasks * (have >= once)
                have = have - once
            if need > once:
                each = need - once
                tasks = np.minimum(tasks, have if each == 1 else have // each)
        counts: Ints = np.maximum(tasks, 0)
        return counts


def equipped_alike(hosts: Sequence[Host], others: Sequence[Host]) -> bool:
    """Are they the same hosts in the same order, with the same resources in the same zones? Their states and
    names of partitions and features may differ."""
    return len(hosts) == len(others) and all(
        a is b or EQUIPMENT(a) == EQUIPMENT(b) for a, b in zip(hosts, others, strict=True)
    )


class LatestCapacities:
    """The capacities under the snapshot asked for last: a pass asks for one snapshot many times.

    Only a cache: the answers are those of `Capacities(snapshot)`.
    """

    def __init__(self) -> None:
        self._last: Capacities | None = None

    def under(self, snapshot: Snapshot) -> Capacities:
        if self._last is None:
            self._last = Capacities(snapshot)
        elif self._last.snapshot is not snapshot:
            self._last = self._last.turned_to(snapshot)
        return self._last
