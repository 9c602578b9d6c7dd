"""What the daemon's parts need of the fleet of hosts' agents."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from rm.core.host import Host


class Agents(Protocol):
    def call(self, name: str, op: str, timeout_s: float = ..., **args: Any) -> Future[dict[str, Any]]: ...
    def clock_offset_us(self, name: str) -> int | None: ...


class Hosts(Agents, Protocol):
    """The agents, and which hosts there are."""

    def add(self, host: Host) -> None: ...
    def remove(self, name: str) -> None: ...
    def hello(self, name: str) -> dict[str, Any] | None: ...
