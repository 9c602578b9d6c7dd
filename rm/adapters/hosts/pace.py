"""A rate limit: a burst at once, and then a number a second."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """A token bucket; belongs to one thread."""

    def __init__(self, burst: float, per_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._per_s = burst, per_s
        self._monotonic = monotonic
        self._left, self._at = burst, monotonic()

    def take(self) -> bool:
        """Take one if there is one now."""
        self._fill()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def wait_s(self) -> float:
        """Take one; how long to wait before it, 0 when it comes within the pace."""
        self._fill()
        self._left -= 1
        return 0.0 if self._left >= 0 else -self._left / self._per_s

    def _fill(self) -> None:
        now = self._monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
