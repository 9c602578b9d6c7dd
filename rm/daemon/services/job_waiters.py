"""Who waits for which job: clients that are woken by every new version of it, or by those that end it; or for
an element of an array, until it no longer waits there."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rm.arrays import each
from rm.core.model.job import Job

_Waiters = dict[asyncio.Event, asyncio.AbstractEventLoop]  # in the order in which they came


@dataclass(slots=True)
class _Elements:
    """Of one array, by index; `asked` is the set of these indices."""

    asked: int = 0
    waiters: defaultdict[int, _Waiters] = field(default_factory=lambda: defaultdict(dict))

    def taken(self, tasks: int) -> Iterator[_Waiters]:
        """Who waits for these elements, and does so no more."""
        self.asked &= ~tasks
        return (self.waiters.pop(task) for task in each(tasks))


class JobWaiters:
    """`changed` is called in the leader's thread, `waiting` and `element` in an event loop.

    However many wait, a new version costs the leader no more than those whom it concerns: an array has one
    with each of its elements.
    """

    def __init__(self) -> None:
        self._by_each: dict[int, _Waiters] = {}
        self._by_end: dict[int, _Waiters] = {}
        self._elements: dict[int, _Elements] = {}
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, job: int, *, for_end: bool = False) -> Iterator[asyncio.Event]:
        """An event that is set by each new version of the job meanwhile; or only by those in which it has
        ended."""
        woken, of = asyncio.Event(), self._by_end if for_end else self._by_each
        with self._lock:
            of.setdefault(job, {})[woken] = asyncio.get_running_loop()
        try:
            yield woken
        finally:
            with self._lock:
                waiting = of[job]
                del waiting[woken]
                if not waiting:
                    del of[job]

    @contextmanager
    def element(self, array: int, task: int) -> Iterator[asyncio.Event]:
        """An event that is set once the element does not wait in its array any more: it has a job of its own,
        or has ended."""
        woken = asyncio.Event()
        with self._lock:
            of = self._elements.setdefault(array, _Elements())
            of.asked |= 1 << task
            of.waiters[task][woken] = asyncio.get_running_loop()
        try:
            yield woken
        finally:
            with self._lock:
                waiting = of.waiters.get(task)
                if waiting is not None and waiting.pop(woken, None) is not None and not waiting:
                    del of.waiters[task]
                    of.asked &= ~(1 << task)
                if not of.waiters and self._elements.get(array) is of:
                    del self._elements[array]

    def changed(self, jobs: Sequence[Job]) -> None:
        woken: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Event]] = defaultdict(list)
        with self._lock:
            if not (self._by_each or self._by_end or self._elements):
                return
            for job in jobs:
                for waiters in self._concerned(job):
                    for event, loop in waiters.items():
                        woken[loop].append(event)
        for loop, events in woken.items():  # one call: each interrupts the loop
            loop.call_soon_threadsafe(_set, events)

    def _concerned(self, job: Job) -> Iterator[_Waiters]:
        if (waiters := self._by_each.get(job.id)) is not None:
            yield waiters
        if job.state.final and (waiters := self._by_end.get(job.id)) is not None:
            yield waiters
        if job.array is not None and (elements := self._elements.get(job.id)) is not None:
            yield from elements.taken(elements.asked & (-1 if job.state.final else ~job.array.has("waiting")))


def _set(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
