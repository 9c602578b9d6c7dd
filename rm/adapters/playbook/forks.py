"""Threads for the hosts that are worked on at a time.

An executor of `concurrent.futures` would load `logging`, which takes a command longer than all that is here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType

Work = Callable[[], None]


class Forks:
    """At most `count` threads, begun as they are needed; what is handed over is begun in that order. Left by
    `with` it waits for what is under way."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._orders: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._free = 0  # threads that wait, less the orders that are on their way to them

    def do(self, work: Work) -> None:
        """`work` raises nothing."""
        with self._guard:
            self._free -= 1
            begins = self._free < 0 and len(self._threads) < self._count
        self._orders.put(work)
        if begins:
            thread = threading.Thread(target=self._work, name=f"playbook_{len(self._threads)}")
            self._threads.append(thread)
            thread.start()

    def drop(self) -> None:
        """Forget what has not been begun."""
        try:
            while True:
                self._orders.get_nowait()
        except Empty:
            pass

    def _work(self) -> None:
        while True:
            with self._guard:
                self._free += 1
            work = self._orders.get()
            if work is None:
                return
            work()

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()
