"""Which hosts are being tested: a host takes part in one test at a time, over all meshes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Bookings:
    """Both hosts of a test are taken together or not at all, so that nobody waits for ever."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._freed = threading.Condition()

    @contextmanager
    def both(self, a: str, b: str) -> Iterator[None]:
        wanted = {a, b}
        with self._freed:
            self._freed.wait_for(lambda: not wanted & self._taken)
            self._taken |= wanted
        try:
            yield
        finally:
            with self._freed:
                self._taken -= wanted
                self._freed.notify_all()
