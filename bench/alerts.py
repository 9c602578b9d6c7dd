"""What alerts cost at 1,000 hosts: a storm in which all are down at once, and a look at a large grid."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings
from rm.adapters.clock import SystemClock
from rm.adapters.store.opening import open_store
from rm.config import AlertsConfig
from rm.core.alerts.findings import network_findings
from rm.core.jobs import events as ev
from rm.core.jobs.state import rebuild
from rm.core.model.host import Host
from rm.core.monitoring.cells import Cell, Status
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.alerts.alerting import Alerting
from rm.daemon.alerts.setup import rules_of
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import Leader
from rm.protocol.request import Answer, Request

HOSTS = 1_000
ZONES = 10
BAD = 10
PATIENCE_S = 300.0


class NoHosts:
    """Neither executor nor agents: nobody is asked anything that counts here."""

    def submit(self, intents: object) -> None: ...

    def call(self, host: str, request: Request[Answer], timeout_s: float = 0.0) -> Future[Answer]:
        return Future()


class Channel:
    def __init__(self) -> None:
        self.heard: list[Mapping[str, Any]] = []
        self.all_told = threading.Event()

    def tell(self, notice: Mapping[str, Any]) -> None:
        self.heard.append(notice)
        if sum(len(n["alerts"]) for n in self.heard) >= HOSTS:
            self.all_told.set()


def run(settings: Settings) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        return [*storm(Path(directory)), *grid()]


def storm(directory: Path) -> list[Figure]:
    store, clock, channel, nobody = (
        open_store(f"sqlite:///{directory / 'rm.db'}"),
        SystemClock(),
        Channel(),
        NoHosts(),
    )
    try:
        assert store.acquire_lease("bench", clock.now_us(), 10**12) is not None
        loaded = store.load()
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
        state = rebuild(loaded.jobs, loaded.hosts, loaded.zones, {}, 1, 1, clock.now_us())
        executor: Any = nobody
        leader = Leader(
            inbox=Inbox(), cycle=Cycle(state, policies), store=store, version=loaded.version, clock=clock,
            executor=executor,
        )  # fmt: skip
        leader.start(())
        names = [f"h{n:04}" for n in range(HOSTS)]
        added = [ev.HostAdded(Host(n, f"z{i % ZONES}", "10.0.0.1")) for i, n in enumerate(names)]
        leader.request(lambda _: [*added, *(ev.HostUp(n, "boot", "0") for n in names)]).result(PATIENCE_S)
        rules = rules_of([{"name": "all", "after_s": 0}], ["channel"])
        channels, config = {"channel": channel}, AlertsConfig()
        alerting = Alerting(
            leader=leader, agents=nobody, clock=clock, cells=lambda _: [], standings=dict, windows=(),
            zone=UTC, rules=rules, channels=channels, settings=config, stored=(), cluster="bench"
        )  # type: ignore[arg-type]  # fmt: skip
        logging.getLogger("rm").setLevel(logging.CRITICAL)  # a line per alert
        alerting.look()
        leader.request(lambda _: [ev.HostDown(n, "no answer") for n in names]).result(PATIENCE_S)
        began = time.perf_counter()
        took_s = []

        def look() -> None:
            alerting.look()
            took_s.append(time.thread_time())

        looking = threading.Thread(target=look)
        looking.start()
        waits = []
        while not channel.all_told.wait(0.002):
            asked = time.perf_counter()
            leader.ask(lambda cycle, now_us: None).result(PATIENCE_S)
            waits.append(time.perf_counter() - asked)
        told_s = time.perf_counter() - began
        looking.join()
        alerting.close()
        leader.stop()
    finally:
        store.close()
    where = f"{HOSTS} hosts down at once"
    return [
        Figure(f"messages, {where}", len(channel.heard), "", target=5),
        Figure(f"the look, {where}", took_s[0] * 1e3, "ms", "processor time"),
        Figure(f"until they are told, {where}", told_s * 1e3, "ms"),
        Figure(f"the leader's slowest answer meanwhile, {where}", max(waits) * 1e3, "ms"),
    ]


def grid() -> list[Figure]:
    found = []
    for bad in (0, BAD):
        cells = list(cells_of({f"z0h{n}" for n in range(bad)}))
        began = time.thread_time()
        findings = list(network_findings(cells, set()))
        took_s = time.thread_time() - began
        assert len(findings) == 2 * bad  # one per host and level
        found.append(
            Figure(f"to judge {len(cells):,} cells, {bad} hosts bad", took_s * 1e3, "ms", "processor time")
        )
    return found


def cells_of(bad: set[str]) -> Iterator[Cell]:
    for zone in range(ZONES):
        names = [f"z{zone}h{n}" for n in range(HOSTS // ZONES)]
        for a in names:
            for b in names:
                if a != b:
                    lossy, lost_pct = (Status.CRITICAL, 1.0) if bad & {a, b} else (Status.OK, 0.0)
                    yield Cell("m", "loss", a, b, lossy, "loss", lost_pct, 1, lossy)
                    yield Cell("m", "delay", a, b, Status.OK, "delay", 1.0, 1, Status.OK)
