"""Threads that may wait for a host, and what is to be done in a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

GREETERS = 8  # apart from those that bring logs home: no hello waits for the logs of a host that hangs


class Aside:
    """Nothing begins any more after `close`."""

    def __init__(self) -> None:
        self._closed = False
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(GREETERS, thread_name_prefix="greet")

    def soon(self, work: Callable[..., None], *arguments: Any) -> None:
        """In a thread that may wait."""
        with self._lock:
            if not self._closed:
                self._threads.submit(work, *arguments)

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        """In a thread of its own, unless all is closed by then."""

        def due() -> None:
            if not self._closed:
                work()

        timer = threading.Timer(seconds, due)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
