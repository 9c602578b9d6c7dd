"""What the daemon's parts need of the fleet of hosts' agents."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from rm.core.model.host import Host
from rm.core.model.identity import ClusterIdentity
from rm.protocol.notifications import Hello
from rm.protocol.request import Answer, Request


class Agents(Protocol):
    def call(self, name: str, request: Request[Answer], timeout_s: float = ...) -> Future[Answer]: ...
    def clock_offset_us(self, name: str) -> int | None: ...


class Hosts(Agents, Protocol):
    """The agents, and which hosts there are; `cluster` is theirs."""

    @property
    def cluster(self) -> ClusterIdentity: ...

    def add(self, host: Host) -> None: ...
    def remove(self, name: str) -> None: ...
    def hello(self, name: str) -> Hello | None: ...
    def raise_epoch(self, name: str, epoch: int) -> None: ...
    def reconnect(self, name: str) -> None: ...
    def peers(self, name: str) -> list[str]: ...
