"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000
