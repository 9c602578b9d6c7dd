"""What the agents of hosts say now and then of disks and GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial

from rm.core.alerts.findings import HostFacts
from rm.core.alerts.gpu_errors import gpu_errors
from rm.core.model.host import Host, HostState
from rm.core.ports import Clock
from rm.daemon.agents import Agents
from rm.protocol import hosts as wire

TIMEOUT_S = 60.0


class Facts:
    """Asked in one thread; answers come in those of the agents."""

    def __init__(self, agents: Agents, clock: Clock, every_us: int) -> None:
        self._agents = agents
        self._clock = clock
        self._every_us = every_us
        self._lock = threading.Lock()
        self._facts: dict[str, HostFacts] = {}
        self._asked_us: dict[str, int] = {}

    def known(self) -> dict[str, HostFacts]:
        with self._lock:
            return dict(self._facts)

    def ask(self, hosts: Iterable[Host], now_us: int, often: Mapping[str, int]) -> None:
        """Ask the agents of those that are up and whose turn it is; in `often`, after how many microseconds,
        where that is sooner."""
        here = {host.name: host for host in hosts}
        with self._lock:
            self._facts = {n: f for n, f in self._facts.items() if n in here}
        self._asked_us = {n: t for n, t in self._asked_us.items() if n in here}
        for name, host in here.items():
            asked_us = self._asked_us.get(name)
            every_us = min(self._every_us, often.get(name, self._every_us))
            lately = asked_us is not None and 0 <= now_us - asked_us < every_us  # the clock may go back
            if host.state is HostState.UP and not lately:
                self._asked_us[name] = now_us
                future = self._agents.call(name, wire.Facts(), TIMEOUT_S)
                future.add_done_callback(partial(self._answered, name))

    def _answered(self, host: str, future: Future[wire.HostFacts]) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # what was last known stays; a host that does not answer is another alert
        with self._lock:
            self._facts[host] = facts_of(future.result(), self._clock.now_us(), self._facts.get(host))


def facts_of(told: wire.HostFacts, at_us: int, before: HostFacts | None = None) -> HostFacts:
    gpus = len(told.gpus)
    return HostFacts(
        at_us,
        told.disk_free_bytes,
        gpus,
        gpu_errors(told),
        told.disk_bytes,
        max(gpus, before.gpus_most if before is not None else 0),
        tuple((gpu.index, gpu.uuid, gpu.busy_pct) for gpu in told.gpus),
    )
