"""What the placed jobs hold, and until when they are expected to hold it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rm.core.jobs.free import left_on
from rm.core.model.job import Job, Placement
from rm.core.model.snapshot import Free, PlacedJob, Snapshot

Ends = Callable[[Job], int | None]  # when a job will have ended, started now if it does not run; None = never
UNKNOWN_US = 1 << 61  # when those have ended whose end nobody knows: after every time that is known
FOREVER_US = 1 << 62  # the end of what outlasts even that


@dataclass(frozen=True, slots=True)
class Stay:
    """A job on its hosts, until then."""

    job: Job
    placement: Placement
    until_us: int


class Running:
    """`snapshot` is the pass's own: what the pass places is noted with `add`."""

    def __init__(self, snapshot: Snapshot, ends: Ends) -> None:
        self._snapshot = snapshot
        self._until: dict[int, int] = {}
        self._on: dict[str, dict[int, Stay]] = {}
        self._first_us: dict[str, int] = {}  # by host: the first end
        self._ends: dict[str, list[int]] = {}  # by host, in order, as far as asked
        self._left: dict[tuple[str, int], Free] = {}  # by host and the end after which it is left, as asked
        for number, placed in snapshot.placed.items():
            end_us = ends(snapshot.jobs[number])
            until_us = UNKNOWN_US if end_us is None else end_us
            self._put(number, Stay(snapshot.jobs[number], placed.placement, until_us))

    def add(self, stay: Stay) -> None:
        """It has been placed; `snapshot` says so already."""
        for host in stay.placement.hosts:
            for end_us in self._ends.pop(host, ()):
                self._left.pop((host, end_us), None)
        self._put(stay.job.id, stay)

    def _put(self, number: int, stay: Stay) -> None:
        until_us = self._until[number] = stay.until_us
        for host in stay.placement.hosts:
            self._on.setdefault(host, {})[number] = stay
            self._first_us[host] = min(until_us, self._first_us.get(host, until_us))

    def ends(self) -> Iterable[tuple[int, int]]:
        """(a job, when it is expected to end)"""
        return self._until.items()

    def times(self) -> set[int]:
        """When jobs are expected to end."""
        return set(self._until.values())

    def changed_by(self, at_us: int) -> list[str]:
        """The hosts of which a job has ended by then."""
        hosts = self._snapshot.hosts
        return [host for host, first_us in self._first_us.items() if first_us <= at_us and host in hosts]

    def free(self, host: str, at_us: int) -> Free:
        """What they leave of a host then."""
        if self._first_us.get(host, FOREVER_US) > at_us:
            return self._snapshot.free[host]
        there = self._on[host]
        if host not in self._ends:
            self._ends[host] = sorted({stay.until_us for stay in there.values()})
        ends = self._ends[host]
        after = host, ends[bisect_right(ends, at_us) - 1]
        if after not in self._left:
            stays = [there[number] for number in sorted(there) if there[number].until_us > at_us]
            left = left_on(self._snapshot.hosts[host], ((one.job, one.placement) for one in stays))
            self._left[after] = left
        return self._left[after]

    def placed(self, at_us: int) -> dict[int, PlacedJob]:
        """Those that are there still."""
        until = self._until
        return {number: one for number, one in self._snapshot.placed.items() if until[number] > at_us}
