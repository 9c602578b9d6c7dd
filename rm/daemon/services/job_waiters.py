"""Who waits for which job: clients that are woken by every new version of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rm.core.model.job import Job


class JobWaiters:
    """`changed` is called in the leader's thread, `waiting` in an event loop."""

    def __init__(self) -> None:
        self._waiters: dict[int, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, job: int) -> Iterator[asyncio.Event]:
        """An event that is set by each new version of the job meanwhile."""
        woken = asyncio.Event()
        entry = (asyncio.get_running_loop(), woken)
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
            woken = [w for job in jobs for w in self._waiters.get(job.id, ())]
        for loop, event in woken:
            loop.call_soon_threadsafe(event.set)
