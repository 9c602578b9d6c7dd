"""Gangs: all tasks of a job or none, on how many hosts, how many on each, with which GPUs.

The tasks of a job are alike, so a gang fits on a set of hosts exactly when the capacities of its
roomiest `hosts_max` hosts add up to the number of tasks, and `hosts_min` hosts have room at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rm.core.jobs.room import gpus_for
from rm.core.model.asked.demand import Demand, Shape
from rm.core.model.asked.distribution import ranks_in_turn
from rm.core.model.host import Host
from rm.core.model.job import NO_BIND, Placement, TaskPlacement
from rm.core.model.quickly_made import quickly_made
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Free
from rm.units import format_count

Ints = NDArray[np.int64]


@quickly_made
@dataclass(frozen=True, slots=True)
class Gang:
    """How many tasks, on at least and at most how many hosts (0 = as many as the tasks need)."""

    tasks: int
    hosts_min: int = 0
    hosts_max: int = 0

    @classmethod
    def of(cls, demand: Demand) -> Gang:
        return cls(demand.ntasks, demand.hosts_min, demand.hosts_max)

    @property
    def most_hosts(self) -> int:
        return min(self.hosts_max, self.tasks) if self.hosts_max else self.tasks

    @property
    def any_hosts(self) -> bool:
        """Does it fit wherever there is room for all of its tasks together?"""
        return self.hosts_min == 0 and self.hosts_max == 0

    def fits(self, caps: Ints) -> bool:
        """Is there a placement on hosts that can take `caps` tasks each?"""
        if self.any_hosts:
            return int(np.add.reduce(caps)) >= self.tasks
        return self.host_count(caps) > 0

    def host_count(self, caps: Ints) -> int:
        """The fewest hosts that hold the gang, at least `hosts_min`; 0 when none do."""
        least, most = max(self.hosts_min, 1), self.most_hosts
        if most < least:
            return 0
        if least == 1 and len(caps) and np.maximum.reduce(caps) >= self.tasks > 0:
            return 1
        room = caps[caps > 0]
        if len(room) < least:
            return 0
        room.sort()
        sums = room[: -most - 1 : -1].cumsum()
        if sums[-1] < self.tasks:
            return 0
        return max(int(sums.searchsorted(self.tasks)) + 1, least)

    def least_cap(self, picked: int, others: Ints, picks_left: int) -> int:
        """The least capacity of the next host so that the gang still fits.

        `picked` is the capacity of the hosts picked so far, `others` the capacities of the rest,
        `picks_left` how many may follow after the next one. As long as the gang fits with
        picks_left + 1 of `others`, a host qualifies exactly when its capacity reaches this.
        """
        return self.tasks - picked - roomiest(others, picks_left)

    def blocker(self, caps: Ints) -> Reason:
        """Why the gang does not fit on hosts with these capacities."""
        some = int(np.add.reduce(caps > 0))
        total = int(np.add.reduce(caps))
        least = max(self.hosts_min, 1)
        if self.most_hosts < least:
            return Reason(
                ReasonCode.RESOURCES,
                f"asks for at least {self.hosts_min} hosts but has only {self.most_hosts} "
                f"{'tasks' if self.most_hosts == self.tasks else 'hosts at most'}",
                (("hosts_min", self.hosts_min), ("tasks", self.tasks), ("hosts_max", self.hosts_max)),
            )
        if 0 < some < least:
            return Reason(
                ReasonCode.RESOURCES,
                f"needs {self.hosts_min} hosts, {some} have room for a task",
                (("hosts_needed", self.hosts_min), ("hosts_with_room", some)),
            )
        if total >= self.tasks:
            limited = roomiest(caps, self.most_hosts)
            return Reason(
                ReasonCode.RESOURCES,
                f"needs room for {self.tasks} tasks on at most {self.most_hosts} hosts, "
                f"the roomiest {self.most_hosts} take {limited}",
                (("tasks", self.tasks), ("hosts_max", self.most_hosts), ("room_tasks", limited)),
            )
        return Reason(
            ReasonCode.RESOURCES,
            f"needs room for {format_count(self.tasks, 'task')} at once, "
            f"{some} of {len(caps)} hosts have room for {total}",
            (("tasks", self.tasks), ("room_tasks", total), ("hosts_with_room", some)),
        )

    def spread(self, caps: Sequence[int]) -> list[int]:
        """Tasks per host over picked hosts, which together hold the gang.

        Where fewer hosts would do (the user asked for this many), evenly, else filling one host
        after the other; every host gets at least one task.
        """
        n = len(caps)
        counts = [1] * n
        left = self.tasks - n
        asked_for = self.hosts_min > 1 and self.host_count(np.asarray(caps, dtype=np.int64)) == n
        if asked_for and n > self._fewest(caps):
            while left:
                for i in range(n):
                    if left and counts[i] < caps[i]:
                        counts[i] += 1
                        left -= 1
            return counts
        for i in range(n):
            more = min(left, caps[i] - 1)
            counts[i] += more
            left -= more
        return counts

    def _fewest(self, caps: Sequence[int]) -> int:
        return Gang(self.tasks).host_count(np.asarray(caps, dtype=np.int64))


class Filling:
    """A gang whose tasks are given to hosts one after the other, so that the rest of it still fits.

    `caps` are the tasks that each host takes in all, with which the gang fits; `given` how many each of the
    hosts that have any has got, `counts` the same of all hosts, to be read alone.
    """

    def __init__(self, gang: Gang, caps: Ints) -> None:
        self._gang, self._caps = gang, caps
        self.given: dict[int, int] = {}
        self.counts: Ints = np.zeros(len(caps), dtype=np.int64)
        self.left = gang.tasks
        self._fresh = caps  # 0 of those that have tasks
        self._room = 0  # of these
        self._sorted: Ints | None = None  # `_fresh` in ascending order

    def give(self, host: int, tasks: int = 1) -> None:
        """The host gets the next task, or several."""
        if host in self.given:
            self.given[host] += tasks
            self._room -= tasks
        else:
            cap = int(self._caps[host])
            if not self.given:
                self._fresh = self._caps.copy()
            self._fresh[host] = 0
            self.given[host] = tasks
            self._room += cap - tasks
            if self._sorted is not None:
                at = int(self._sorted.searchsorted(cap))
                self._sorted = np.concatenate((self._sorted[:at], self._sorted[at + 1 :]))
        self.counts[host] += tasks
        self.left -= tasks

    def may_take(self) -> NDArray[np.bool_]:
        """The hosts that can take the next task so that the rest of the gang still fits."""
        gang = self._gang
        if gang.any_hosts or gang.tasks == 1:
            may: NDArray[np.bool_] = self._fresh > 0
            self._beside(may)
            return may
        rest = self.left - 1
        slots, owed = gang.most_hosts - len(self.given), max(gang.hosts_min - len(self.given), 0)
        others = self._roomiest(slots - 1)  # beside one more host, which must hold what is left
        if slots > 0 and owed - 1 <= rest:
            may = self._fresh >= max(rest + 1 - self._room - others, 1)
        else:
            may = np.zeros(len(self._caps), dtype=bool)
        if self.given and owed <= rest and self._room - 1 + self._roomiest(slots) >= rest:
            self._beside(may)
        return may

    def _beside(self, may: NDArray[np.bool_]) -> None:
        """Add the hosts that have tasks, and room for more."""
        for host, tasks in self.given.items():
            if tasks < self._caps[host]:
                may[host] = True

    def _roomiest(self, hosts: int) -> int:
        """Capacity of the roomiest of those that have no tasks."""
        if hosts <= 0:
            return 0
        if self._sorted is None:
            self._sorted = np.sort(self._fresh)
        return int(np.add.reduce(self._sorted[-hosts:]))


def roomiest(caps: Ints, hosts: int) -> int:
    """Capacity of the roomiest `hosts` hosts together."""
    if hosts <= 0:
        return 0
    if hosts >= len(caps):
        return int(np.add.reduce(caps))
    return int(np.add.reduce(np.partition(caps, len(caps) - hosts)[-hosts:]))


def place(
    counts: Sequence[tuple[Host, int]],
    free: Mapping[str, Free],
    shape: Shape,
) -> Placement:
    """The placement with `count` tasks on each host, lowest free GPU indices first."""
    return laid_out(
        [
            (host.name, count, gpus_for(host, free[host.name], shape) if wants_gpus(shape) else ())
            for host, count in counts
        ],
        shape,
    )


def laid_out(taken: Sequence[tuple[str, int, Sequence[int]]], shape: Shape) -> Placement:
    """Ranks and GPUs over (host, tasks, GPUs in the order of choice), the hosts in the order of the ranks."""
    seen = [(host, seen_by_tasks(gpus, count, shape)) for host, count, gpus in taken]
    places: list[TaskPlacement] = []
    most = max(len(tasks) for _, tasks in seen)
    at_once = ranks_in_turn(shape.distribution) or most
    for turn in range(0, most, at_once):
        for host, tasks in seen:
            for gpus in tasks[turn : turn + at_once]:
                places.append(TaskPlacement(len(places), host, gpus))
    return Placement(tuple(places))


def wants_gpus(shape: Shape) -> bool:
    return bool(shape.least_gpus) or shape.takes_all_gpus


def seen_by_tasks(gpus: Sequence[int], tasks: int, shape: Shape) -> list[tuple[int, ...]]:
    """Which GPUs of one host each of the job's tasks there sees; `gpus` are those to take, in that order."""
    if shape.takes_all_gpus:
        return [tuple(gpus)] * tasks
    if not shape.least_gpus:
        return [()] * tasks
    gpus = tuple(gpus[: shape.gpus_for(tasks)])
    if shape.ntasks_per_gpu:
        return [(gpus[task // shape.ntasks_per_gpu],) for task in range(tasks)]
    if shape.gpus_per_host or shape.gpu_bind == NO_BIND:
        return [gpus] * tasks
    return [gpus[task * shape.gpus_per_task : (task + 1) * shape.gpus_per_task] for task in range(tasks)]
