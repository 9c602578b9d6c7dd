"""A monitor of two hosts, `a` and `b`, with a prober that answers what a test says."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC
from typing import Any

import msgspec

from rm.adapters.store.memory import MemoryStore
from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.state import ClusterState
from rm.core.model.network.links import LinkStats
from rm.core.monitoring.cells import Status
from rm.core.monitoring.history import Retention
from rm.core.monitoring.maintenance import HostWindow
from rm.core.monitoring.mesh import Every, Mesh, Thresholds
from rm.core.monitoring.source import Source
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.monitoring import probe as monitor_probe
from rm.daemon.monitoring.board import Board
from rm.daemon.monitoring.monitor import Monitor
from rm.daemon.monitoring.ports import Archives
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.monitoring.sources import Sources
from rm.errors import Unreachable
from rm.protocol.line import Misfit, read_answer
from rm.protocol.notifications import Reflecting
from rm.protocol.probes import Reflected
from rm.protocol.request import Request
from tests import builders
from tests.fakes import PATIENCE_S, ManualClock, asked

ONEWAY = {
    "sent": 100,
    "received": 50,
    "loss_forward_pct": 1.0,
    "loss_backward_pct": 50.0,
    "forward_us": {"median": 300},
    "jitter_forward_us": 7,
    "rtt_us": {"median": 650},
    "clock_error_us": 40,
}
MINUTE_US = 60_000_000


class Lead:
    """The leader's inbox over a state of its own."""

    def __init__(self) -> None:
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies)
        self._lock = threading.RLock()
        self.longest = 0  # events of one request

    def post(self, event: ev.Event) -> None:
        with self._lock:
            apply(self.cycle.state, event, 5, Rules(), Changes())

    def ask(self, question: Callable[[Cycle, int], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            future.set_result(question(self.cycle, 5))
        return future

    def request(self, make: Callable[[ClusterState], list[ev.Event]]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            events = make(self.cycle.state)
            self.longest = max(self.longest, len(events))
            for event in events:
                self.post(event)
        future.set_result(None)
        return future


class Prober:
    """Agents that answer at once; `deaf` hosts do not reflect, `dumb` ones cannot probe."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.deaf: set[str] = set()
        self.dumb: set[str] = set()
        self.iperf: set[str] = set()
        self.cut: set[tuple[str, str]] = set()  # directions in which nothing gets through
        self.reflectors: dict[int, Future[Any]] = {}
        self.longest_us = 10**9
        self.oneway: dict[str, Any] = dict(ONEWAY)
        self.arrived: int | None = None  # what the reflector counts, if it is not what the prober says
        self.services: dict[str, dict[str, Any]] = {"clock": {"at_us": 7_000_000, "synchronized": True}}
        self.reached = True
        self.itself = ""  # a host's own address in traces
        self.monitor: Monitor | None = None
        self.held: threading.Event | None = None
        self.begun = threading.Event()

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        op, args = asked(request)
        self.asked.append((name, op, args))
        future: Future[Any] = Future()

        def say(**result: Any) -> None:
            try:
                future.set_result(read_answer(type(request), msgspec.json.encode(result)))
            except Misfit as misfit:
                future.set_exception(misfit)

        if op == "reflect":
            assert self.monitor is not None
            self.reflectors[args["port"]] = future
            self.monitor.prober.heard(name, Reflecting(port=args["port"]))
            if name in self.deaf:
                future.set_exception(Unreachable(f"{name} is gone."))  # it began to listen, then went away
        elif op == "probe" and args["kind"] == "tools":
            say(iperf3=name in self.iperf)
        elif op == "probe" and (name in self.dumb or self.deaf):
            future.set_exception(Unreachable(f"{name} is gone."))
        elif op == "probe" and args["kind"] == "throughput":
            sent_us = sum(length for _, length in args.get("windows", ()))
            sent_us = min(sent_us, self.longest_us)
            say(throughput_bps=900, bytes=sent_us // 10, duration_us=sent_us)
        elif op == "probe" and args["kind"] == "mtu":
            say(mtu_bytes=1500 if name == "a" else 9000)
        elif op == "probe" and args["kind"] == "trace":
            self.asked.pop()
            end = self.itself or args["address"]
            hops = [{"address": "10.0.0.1", "answered": 5}, {"address": end, "answered": 2}]
            say(hops=hops, sent=5, reached=self.reached)
        elif op == "probe" and args["kind"] in self.services:
            say(**self.services[args["kind"]])
        elif op == "probe" and self.cut:
            say(**self.one_cut(name, args["address"].removesuffix(".test"), args["port"]))
        elif op == "probe":
            self.begun.set()
            if self.held is not None:
                assert self.held.wait(PATIENCE_S)
            say(**self.oneway)
            self.count(args["port"], self.oneway)
        else:
            say(now_us=0)
        return future

    def count(self, port: int, told: dict[str, Any]) -> None:
        """What the reflector says at its end."""
        arrived = round(told["sent"] * (1 - told["loss_forward_pct"] / 100))
        if self.arrived is not None:
            arrived = self.arrived
        self.reflectors[port].set_result(Reflected(answered=arrived))

    def one_cut(self, name: str, other: str, port: int) -> dict[str, Any]:
        """What the prober sees, while the reflector knows what has reached it."""
        if (name, other) not in self.cut:
            assert self.monitor is not None
            self.monitor.prober.heard(other, Reflecting(port=port, reached=True))
            self.reflectors[port].set_result(Reflected(answered=98))
            if (other, name) not in self.cut:
                return self.oneway
        return {"sent": 100, "received": 0, "loss_forward_pct": 100.0, "loss_backward_pct": None}

    def clock_offset_us(self, name: str) -> int | None:
        return {"a": 100, "b": 400}.get(name)

    def probes(self) -> list[dict[str, Any]]:
        return [args for _, op, args in self.asked if op == "probe" and args["kind"] != "tools"]

    def kinds(self) -> list[str]:
        return [args["kind"] for args in self.probes()]


class Settings:
    throughput_interval_s = 10.0
    probe_count = 3
    parallel = 4


class Gaps:
    found: Sequence[tuple[int, int]] | None = None  # None: no job is near

    def busy(self, a: str, b: str) -> bool:
        return self.found is not None

    def next(self, a: str, b: str, duration_us: int) -> Sequence[tuple[int, int]]:
        return self.found or ()


LATENCY = Mesh(
    "latency", Every(MINUTE_US), attempts=2, thresholds=Thresholds(loss_warn_pct=0.5, loss_critical_pct=50)
)
THROUGHPUT = Mesh("throughput", Every(60 * MINUTE_US), tests=("throughput",), rate_bps=5_000)
MTU = Mesh("mtu", tests=("mtu",))


class House:
    def __init__(
        self,
        *meshes: Mesh,
        hosts: int = 2,
        windows: Sequence[HostWindow] = (),
        agents: Prober | None = None,
        archives: Archives | None = None,
    ) -> None:
        self.lead, self.agents, self.clock, self.gaps = Lead(), agents or Prober(), ManualClock(), Gaps()
        for name in "abcdefghijkl"[:hosts]:
            self.lead.post(ev.HostAdded(builders.host(name, cpus=2)))
        self.store = MemoryStore()
        self.board = Board(self.store.history, self.clock, UTC, windows)
        self.monitor = self.agents.monitor = Monitor(
            agents=self.agents,
            leader=self.lead,  # type: ignore[arg-type]
            clock=self.clock,
            history=self.store.history,
            board=self.board,
            meshes=meshes or (LATENCY, THROUGHPUT, MTU),
            settings=Settings(),
            gaps=self.gaps,
            interval_of=lambda mesh: mesh.schedule.interval_us,  # type: ignore[union-attr]
            archives=archives,
        )

        self.monitor.prober = monitor_probe.Prober(self.agents, patience_s=0.0)

    def service(self, *sources: Source, read: Any = None) -> MonitorService:
        """As the daemon makes it; `read` stands for the archives."""
        history, lead = self.store.history, self.lead
        archives = Sources(
            sources=sources,
            malformed=(),
            leader=lead,
            history=history,
            board=self.board,
            clock=self.clock,
            read=read,
        )  # type: ignore[arg-type]
        return MonitorService(
            monitor=self.monitor,
            leader=lead,  # type: ignore[arg-type]
            history=history,
            clock=self.clock,
            timers=None,
            keep=Retention(),
            malformed=(),
            sources=archives,
        )

    def network(self) -> dict[tuple[str, str], LinkStats]:
        return dict(self.lead.cycle.state.network)

    def status(self, mesh: Mesh, check: str, pair: str = "ab") -> Status:
        hosts = self.lead.cycle.state.hosts
        cells = self.board.cells(mesh, hosts, self.monitor.every_us(mesh))
        return next(c.status for c in cells if (c.check, c.source, c.destination) == (check, *pair))
