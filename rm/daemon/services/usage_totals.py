"""What jobs of each account used that ended since this daemon leads: counters for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from rm.core.sharing.ended import Ended, Sums

ACCOUNTS_MOST = 500  # with sums of their own; jobs of the others count for none
NONE = Sums()


class UsageTotals:
    def __init__(self) -> None:
        self._of: dict[str, Sums] = {}
        self._lock = threading.Lock()

    def add(self, ended: Sequence[Ended]) -> None:
        """In the leader's thread."""
        with self._lock:
            for part in ended:
                before = self._of.get(part.account)
                if before is None and len(self._of) >= ACCOUNTS_MOST:
                    continue
                self._of[part.account] = (before or NONE).plus(part.of_job).plus(part.on_host)

    def now(self) -> Mapping[str, Sums]:
        """By account, "" for jobs that run for none; from any thread."""
        with self._lock:
            return dict(self._of)
