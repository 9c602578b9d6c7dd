"""What the monitor needs of others: settings, and where results go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rm.core.monitoring.outcome import Outcome


class Settings(Protocol):
    @property
    def throughput_interval_s(self) -> float: ...
    @property
    def probe_count(self) -> int: ...
    @property
    def parallel(self) -> int: ...


class Archives(Protocol):
    """Where results go besides the history."""

    def takes(self, mesh: str) -> bool: ...
    def keep(self, outcomes: Iterable[Outcome]) -> None: ...
