"""Host keys for administrators: asked for in threads of their own, one at a time per host.

A host that does not answer takes a thread for the whole of a connection's time-out. So these threads are no
one else's; a request for a host that is being asked already waits for that answer; and a host that failed
is not asked again at once. A key is not kept: one that has changed since must be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from rm.core.model.host import Host
from rm.errors import Conflict, RmError

THREADS = 8
WAITING_MAX = 64  # hosts that are being asked
KEPT_S = 10.0


class Keys(Protocol):
    """Host keys: what a host presents, and which are pinned."""

    def present(self, host: Host) -> Mapping[str, Any]: ...
    def accept(self, host: Host, fingerprint: str) -> Mapping[str, Any]: ...


class HostKeyDesk:
    """Its methods are called from one event loop."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="host-keys")
        self._asked: dict[Host, asyncio.Task[Mapping[str, Any]]] = {}
        self._failed: dict[Host, tuple[float, RmError]] = {}  # until when

    async def present(self, host: Host) -> Mapping[str, Any]:
        """What the host presents and what is pinned. Raises HostKeyError, Unreachable or Conflict."""
        host = _door(host)
        now = asyncio.get_running_loop().time()
        self._failed = {one: failed for one, failed in self._failed.items() if failed[0] > now}
        if host in self._failed:
            raise self._failed[host][1]
        if host not in self._asked:
            if len(self._asked) >= WAITING_MAX:
                said = f"{WAITING_MAX} hosts are being asked for their keys."
                raise Conflict(said, "Try again in a moment.")
            task = asyncio.get_running_loop().create_task(self._ask(host))
            self._asked[host] = task
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._asked[host])  # who asks may go: others wait for the same answer

    async def accept(self, host: Host, fingerprint: str) -> Mapping[str, Any]:
        """Pins the key with exactly this fingerprint. Raises HostKeyError or Unreachable."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._keys.accept, host, fingerprint)
        finally:
            self._failed.pop(_door(host), None)

    async def _ask(self, host: Host) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._keys.present, host)
        except RmError as problem:
            self._failed[host] = (loop.time() + KEPT_S, problem)
            raise
        finally:
            del self._asked[host]


def _door(host: Host) -> Host:
    """The host by what matters for its key."""
    return Host(host.name, "", host.address, host.port)
