"""Who waits for which job: clients that are woken by every new version of it, or by those that end it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rm.core.model.job import Job


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    event: asyncio.Event
    for_end: bool


class JobWaiters:
    """`changed` is called in the leader's thread, `waiting` in an event loop."""

    def __init__(self) -> None:
        self._waiters: dict[int, list[_Waiter]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, job: int, *, for_end: bool = False) -> Iterator[asyncio.Event]:
        """An event that is set by each new version of the job meanwhile; or only by those in which it has
        ended: an array has a new version with each of its elements."""
        woken = asyncio.Event()
        entry = _Waiter(asyncio.get_running_loop(), woken, for_end)
        with self._lock:
            self._waiters.setdefault(job, []).append(entry)
        try:
            yield woken
        finally:
            with self._lock:
                waiting = self._waiters[job]
                waiting.remove(entry)
                if not waiting:
                    del self._waiters[job]

    def changed(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if not self._waiters:
                return
            woken = [
                one
                for job in jobs
                for one in self._waiters.get(job.id, ())
                if job.state.final or not one.for_end
            ]
        for one in woken:
            one.loop.call_soon_threadsafe(one.event.set)
