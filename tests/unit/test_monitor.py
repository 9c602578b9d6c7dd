"""What a run of a mesh measures, what is recorded of it, and of tries that failed or cannot be true."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from typing import Any

import msgspec
import pytest

from rm.adapters.store.memory import MemoryStore
from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.state import ClusterState
from rm.core.model.host import Nic
from rm.core.model.network.links import LinkStats
from rm.core.monitoring.cells import Status
from rm.core.monitoring.history import Retention
from rm.core.monitoring.maintenance import HostWindow, parse_window
from rm.core.monitoring.mesh import Every, Mesh, MeshState, Thresholds
from rm.core.monitoring.source import Source
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.monitoring import probe as monitor_probe
from rm.daemon.monitoring.board import Board
from rm.daemon.monitoring.meshes import meshes_of
from rm.daemon.monitoring.monitor import Archives, Monitor
from rm.daemon.monitoring.service import MonitorService
from rm.daemon.monitoring.sources import Sources
from rm.errors import Conflict, NotFound, Unreachable
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


@pytest.fixture
def house() -> House:
    return House()


def test_both_directions_of_a_pair_are_recorded(house: House) -> None:
    state = house.monitor.run("latency")
    assert (state.measured, state.failed) == (1, 0)
    there, back = house.network()[("a", "b")], house.network()[("b", "a")]
    assert (there.loss_pct, there.delay_us, there.jitter_us) == (1.0, 300, 7)
    assert (back.loss_pct, back.delay_us) == (50.0, None)
    assert (there.measured_at_us, there.fresh_us) == (house.clock.us, MINUTE_US)
    assert house.agents.probes()[0]["offset_us"] == 300  # the clocks' difference makes one-way delays true
    (sample,) = house.store.history.samples("a", "b")
    assert sample.values == {
        "loss_pct": 1.0, "delay_us": 300, "jitter_us": 7, "rtt_us": 650, "clock_error_us": 40
    }  # fmt: skip
    assert house.store.history.mesh_states() == [state]


def test_hosts_that_the_inventory_names_are_measured_by_their_addresses(house: House) -> None:
    """Hosts need not know each other's names, and answers go to addresses."""
    for name, number in (("a", 1), ("b", 2)):
        house.lead.post(ev.HostAdded(builders.host(name, address=f"{name}.example", cpus=2)))
        nics = (Nic("eth0", f"10.0.0.{number}"), Nic("ib0"), Nic("eth1", f"10.1.0.{number}"))
        house.lead.post(ev.HostUp(name, "boot", "1", nics=nics))
    house.monitor.run("latency")
    (reflect,) = (args for name, op, args in house.agents.asked if op == "reflect")
    assert [args["address"] for args in house.agents.probes()] == ["10.0.0.2"]
    assert reflect["allow"] == ["a.example", "10.0.0.1", "10.1.0.1"]


@pytest.mark.parametrize(
    ("cut", "there", "back"),
    [("ab", 100.0, 2.0), ("ba", 2.0, 100.0), ("ab ba", 100.0, 100.0)],
)
def test_of_a_path_that_is_lost_one_way_only_that_way_is_bad(
    house: House, monkeypatch: pytest.MonkeyPatch, cut: str, there: float, back: float
) -> None:
    monkeypatch.setattr(monitor_probe, "REACHED_S", 0.01)
    house.agents.cut = {(pair[0], pair[1]) for pair in cut.split()}
    state = house.monitor.run("latency")
    network = house.network()
    assert (network["a", "b"].loss_pct, network["b", "a"].loss_pct) == (there, back)
    assert (network["a", "b"].delay_us, state.measured) == (None, 1)


def test_a_run_that_is_under_way_ends_quietly_with_the_daemon() -> None:
    house = House(LATENCY, hosts=12)  # six pairs at once, for four threads
    house.agents.held = threading.Event()
    with ThreadPoolExecutor(1) as timers:
        run = timers.submit(house.monitor.scheduled, "latency")
        assert house.agents.begun.wait(PATIENCE_S)
        house.monitor.close()
        house.agents.held.set()
        assert run.result(PATIENCE_S) is None


def test_throughput_goes_both_ways_at_the_rate_of_the_mesh_and_keeps_the_rest(house: House) -> None:
    house.monitor.run("latency")
    house.clock.us += MINUTE_US
    house.monitor.run("throughput")
    there = house.network()[("a", "b")]
    assert (there.bandwidth_bps, there.loss_pct) == (900, 1.0)
    assert (there.bandwidth_at_us - there.measured_at_us, there.bandwidth_fresh_us) == (
        MINUTE_US,
        60 * MINUTE_US,
    )
    flows = [p for p in house.agents.probes() if p["kind"] == "throughput"]
    assert [p["rate_bps"] for p in flows] == [5_000, 5_000]
    house.monitor.run("mtu")
    (sample,) = house.store.history.samples("b", "a", mesh="mtu")
    assert sample.values == {"mtu_bytes": 9000}


def test_iperf_is_used_where_both_have_it_and_nobody_must_be_spared(house: House) -> None:
    house.agents.iperf = {"a", "b"}
    house.monitor.run("throughput")
    house.gaps.found = [(7_000_000, 150_000), (7_500_000, 50_000)]
    house.monitor.run("throughput")
    assert house.network()[("b", "a")].bandwidth_bps == 800_000
    flows = [p for p in house.agents.probes() if p["kind"] == "throughput"]
    assert [p.get("tool") for p in flows] == ["iperf3", "iperf3", None, None]
    # by the sender's own clock: a is 100 us ahead of the leader's, b 400
    assert flows[2]["windows"] == [[7_000_100, 150_000], [7_500_100, 50_000]]
    assert flows[3]["windows"][0] == [7_000_400, 150_000]


def test_where_jobs_leave_no_gap_nothing_is_sent(house: House) -> None:
    house.gaps.found = []
    state = house.monitor.run("throughput")
    assert (state.measured, state.failed, state.skipped) == (1, 0, 1)
    assert house.agents.kinds() == []
    assert house.network() == {}


def test_gaps_are_asked_for_until_half_of_the_test_is_made_and_little_tells_nothing(house: House) -> None:
    house.gaps.found = [(7_000_000, 30_000)]  # of 400 ms
    house.monitor.run("throughput")
    assert len(house.agents.probes()) == 2 * 7
    assert house.network()[("a", "b")].bandwidth_bps == 800_000
    house.agents.longest_us = 1_000  # the hosts were told too late
    assert house.monitor.run("throughput").skipped == 1


def test_on_demand_throughput_is_measured_seldom(house: House) -> None:
    for passed_us, flows in ((0, 2), (9_000_000, 2), (1_000_000, 4)):
        house.clock.us += passed_us
        assert house.monitor.measure().pairs == 1
        assert house.agents.kinds().count("throughput") == flows
    assert house.network()[("a", "b")].bandwidth_bps == 900
    assert house.monitor.measure("elsewhere").pairs == 0


def test_what_is_measured_on_demand_names_the_hosts_of_which_nothing_was_found() -> None:
    house = House(LATENCY, hosts=4)
    house.lead.post(ev.HostDown("b", "no route to it."))
    measured = house.monitor.measure()
    assert (measured.pairs, measured.left_out) == (3, (("b", "DOWN: no route to it"),))
    house.agents.deaf = set("acd")
    assert dict(house.monitor.measure().left_out)["d"].startswith("latency: d is gone")


def test_a_result_that_does_not_count_yet_is_confirmed_before_the_next_run() -> None:
    rates = Mesh("rates", Every(60 * MINUTE_US), tests=("mtu",), thresholds=Thresholds(mtu_warn_bytes=2_000))
    house = House(rates, LATENCY, hosts=3)
    house.monitor.run("rates")
    assert house.status(rates, "mtu", "ab") is Status.NOT_RUN  # 1,500 bytes, once
    assert house.status(rates, "mtu", "ba") is Status.OK
    runs = house.store.history.mesh_states()
    for _ in range(4):  # both pairs of a, one after the other
        house.clock.us += MINUTE_US
        house.monitor.confirm()
    assert house.status(rates, "mtu", "ab") is house.status(rates, "mtu", "ac") is Status.WARN
    assert house.store.history.mesh_states() == runs
    asked = len(house.agents.asked)
    house.monitor.confirm()  # nothing is in doubt any more; latency comes every minute by itself
    house.monitor.set_paused("rates", "ann")
    house.monitor.confirm()
    assert len(house.agents.asked) == asked


def test_a_run_with_no_host_up_does_not_count_and_who_comes_later_is_measured_soon() -> None:
    house = House(THROUGHPUT, hosts=5)
    for name in "abcde":
        house.lead.post(ev.HostDown(name, "it has not answered yet."))
    state = house.monitor.run("throughput")
    assert (state.begun_us, state.ended_us, house.store.history.mesh_states()) == (0, 0, [])
    house.monitor.confirm()
    assert house.network() == {}
    for name in "abcd":
        house.lead.post(ev.HostUp(name, "boot", "1"))
    house.monitor.confirm()
    assert len(house.network()) == 4 * 3
    first = house.monitor.state("throughput")
    assert (first.begun_us, first.ended_us > 0, first.measured) == (house.clock.us, True, 4 * 3 // 2)
    asked = len(house.agents.asked)
    house.monitor.confirm()  # nobody is new: the next run is in an hour
    assert len(house.agents.asked) == asked
    house.lead.post(ev.HostUp("e", "boot", "1"))
    house.monitor.confirm()
    assert len(house.network()) == 5 * 4
    assert all(stats.bandwidth_bps for stats in house.network().values())
    assert house.monitor.state("throughput") == first
    assert len(house.agents.probes()) == 5 * 4  # what was known was not measured again


def test_of_a_mesh_of_few_rounds_a_new_host_takes_part_in_as_many() -> None:
    house = House(replace(THROUGHPUT, rounds=2), hosts=6)
    house.monitor.confirm()
    assert len(house.network()) == 2 * 6  # two rounds of three pairs, both ways


def test_a_scheduled_test_takes_the_time_that_its_run_has(house: House) -> None:
    for agents in (house.agents, crowd_agents := Prober()):
        agents.oneway |= {"loss_forward_pct": 0.0, "loss_backward_pct": 0.0}
    house.monitor.run("latency")
    house.monitor.scheduled("latency")
    quick, spread = (p["interval_us"] for p in house.agents.probes())
    assert (quick, spread) == (2_000, 180_000)  # 18 s of a minute: a link that is dead for seconds shows
    crowd = House(LATENCY, hosts=12, agents=crowd_agents)  # 8 rounds of 6 pairs, 4 tests at a time
    crowd.monitor.scheduled("latency")
    assert {p["interval_us"] for p in crowd.agents.probes()} == {MINUTE_US * 2 // 5 // 16 // LATENCY.packets}


def test_a_pair_in_doubt_is_looked_at_more_closely_before_the_next_run(house: House) -> None:
    """One of 100 packets may be chance: ten times as many say more, and that twice at most."""
    house.agents.oneway |= {"loss_forward_pct": 1.0, "loss_backward_pct": 0.0}
    house.monitor.run("latency")  # somebody waits
    assert [p["count"] for p in house.agents.probes()] == [100]
    house.monitor.scheduled("latency")
    assert [p["count"] for p in house.agents.probes()[1:]] == [100, 1_000, 1_000]
    assert {p["interval_us"] for p in house.agents.probes()[2:]} == {18_000}
    house.agents.oneway["loss_forward_pct"] = 0.0
    sound = House(LATENCY, agents=Prober())
    sound.agents.oneway |= {"loss_forward_pct": 0.0, "loss_backward_pct": 0.0}
    sound.monitor.scheduled("latency")
    assert [p["count"] for p in sound.agents.probes()] == [100]


def test_a_mesh_has_further_checks_where_it_has_thresholds_for_them() -> None:
    limits = Thresholds(delay_p95_warn_ms=1, jitter_warn_ms=1, clock_critical_ms=5)
    mesh = replace(LATENCY, thresholds=limits)
    assert mesh.checks == ("loss", "delay", "delay_p95", "jitter", "clock")
    house = House(mesh)
    house.agents.oneway |= {
        "forward_us": {"median": 300, "p95": 1_200},
        "backward_us": {"median": 200, "p95": 900},
        "jitter_backward_us": 40,
        "offset_us": -6_000,
    }
    for _ in range(2):
        house.monitor.run("latency")
    for pair, p95 in (("ab", Status.WARN), ("ba", Status.OK)):
        assert house.status(mesh, "delay_p95", pair) is p95
        assert house.status(mesh, "jitter", pair) is Status.OK
        assert house.status(mesh, "clock", pair) is Status.CRITICAL
    usual = House(LATENCY)
    usual.monitor.run("latency")
    cells = usual.board.cells(LATENCY, usual.lead.cycle.state.hosts, MINUTE_US)
    assert {c.check for c in cells} == {"loss", "delay"}


def test_the_reflector_counts_what_arrived_after_the_last_answer_that_came_back() -> None:
    """The way back is dead at the end of the test: the prober does not hear of the last 30 questions."""
    house = House(LATENCY)
    house.agents.oneway |= {"received": 70, "loss_forward_pct": 30.0, "loss_backward_pct": 0.0}
    house.agents.arrived = 100
    house.monitor.run("latency")
    lost = {
        (c.source, c.destination): c.value
        for c in house.board.cells(LATENCY, house.lead.cycle.state.hosts, MINUTE_US)
        if c.check == "loss"
    }
    assert lost == {("a", "b"): 0.0, ("b", "a"): 30.0}


def test_the_alert_of_a_loss_that_begins_has_its_trace(house: House) -> None:
    house.agents.oneway |= {"loss_forward_pct": 60.0, "loss_backward_pct": 0.0}
    for _ in range(2):
        house.monitor.run("latency")
    house.monitor.close(wait=True)
    hosts = house.lead.cycle.state.hosts
    (cell,) = [c for c in house.board.cells(LATENCY, hosts, MINUTE_US) if c.status is Status.CRITICAL]
    where = "trace: a > 10.0.0.1 > b.test: lost behind hop 1 (10.0.0.1, answered 5 of 5)"
    assert where in cell.said
    (change,) = house.store.history.changes("latency", "loss", "a", "b")
    assert where in change.message


def test_traces_leave_the_rounds_their_threads_and_their_faults_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House(hosts=5)
    house.agents.oneway |= {"loss_forward_pct": 60.0, "loss_backward_pct": 60.0}
    go_on, left_waiting = threading.Event(), []

    def slow(*words: object) -> None:
        if not go_on.wait(PATIENCE_S):
            left_waiting.append(words)
        raise ZeroDivisionError("a fault of the program")

    house.monitor.prober.trace = slow  # type: ignore[method-assign, assignment]
    for _ in range(3):
        house.monitor.run("latency")
    go_on.set()
    house.monitor.close(wait=True)
    assert left_waiting == []
    assert "a fault of the program" in caplog.text


def test_a_mesh_that_takes_longer_than_its_interval_says_so_and_its_cells_stay(house: House) -> None:
    house.agents.oneway |= {"loss_forward_pct": 0.0, "loss_backward_pct": 0.0}
    call = house.agents.call

    def slowly(name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        house.clock.us += 2 * MINUTE_US if asked(request)[0] == "probe" else 0
        return call(name, request, timeout_s)

    assert house.monitor.complaint(LATENCY) == ""
    house.agents.call = slowly  # type: ignore[method-assign]
    house.monitor.scheduled("latency")
    said = house.monitor.complaint(LATENCY)
    assert "takes 2m, longer than its interval of 1m: each pair is measured every 2m" in said
    assert house.monitor.every_us(LATENCY) == 2 * MINUTE_US
    service = house.service()
    rows = asyncio.run(service.meshes())["meshes"]
    assert {row["name"]: row["complaint"] for row in rows} == {"latency": said, "throughput": "", "mtu": ""}
    assert service.paused() == set()
    house.monitor.set_paused("mtu", "ann")
    assert service.paused() == {"mtu"}
    house.clock.us += 3 * MINUTE_US  # of three intervals of a minute they would be stale
    assert house.status(LATENCY, "loss") is Status.OK
    house.agents.call = call  # type: ignore[method-assign]
    house.monitor.scheduled("latency")
    assert house.monitor.complaint(LATENCY) == ""


@pytest.mark.parametrize("who", ["deaf", "dumb"])
def test_a_failed_try_keeps_the_values_and_costs_confidence(house: House, who: str) -> None:
    house.monitor.run("latency")
    good = house.network()
    getattr(house.agents, who).update({"a", "b"})
    house.clock.us += MINUTE_US
    assert house.monitor.run("latency").failed == 1
    assert house.network() == {k: replace(v, failures=1) for k, v in good.items()}
    sample = house.store.history.samples("a", "b")[-1]
    assert sample.values == {}
    assert "is gone" in sample.failed
    view = house.lead.cycle.state.snapshot(house.clock.us).network
    assert view.confidence("a", "b") == 0.5
    getattr(house.agents, who).clear()
    house.monitor.run("latency")
    assert house.network()[("a", "b")].failures == 0


def test_a_status_flips_after_so_many_tries_and_is_remembered(house: House) -> None:
    house.agents.oneway["loss_forward_pct"] = 0.0
    house.monitor.run("latency")
    assert house.status(LATENCY, "loss") is Status.OK
    house.agents.oneway["loss_forward_pct"] = 70.0
    seen = []
    for _ in range(3):
        house.clock.us += MINUTE_US
        house.monitor.run("latency")
        seen.append(house.status(LATENCY, "loss"))
    assert seen == [Status.OK, Status.CRITICAL, Status.CRITICAL]
    (change,) = house.store.history.changes("latency", "loss", "a", "b")
    assert (change.was, change.status, change.value) == (Status.OK, Status.CRITICAL, 70.0)
    assert change.at_us == house.clock.us - MINUTE_US
    again = Board(house.store.history, house.clock, UTC)  # the daemon's next life
    (cell,) = [
        c
        for c in again.cells(LATENCY, house.lead.cycle.state.hosts, MINUTE_US)
        if c.key[1:3] == ("loss", "a")
    ]
    assert (cell.status, cell.message) == (
        Status.CRITICAL,
        "loss 70 % (210 of 300 packets in 3 tries, at least 63.4 %), critical from 50 %",
    )
    assert cell.checked_us == house.clock.us
    house.clock.us += 10 * MINUTE_US  # nobody measures any more
    assert house.status(LATENCY, "loss") is Status.UNKNOWN


def test_of_a_host_that_is_removed_and_comes_again_nothing_is_known(house: House) -> None:
    house.monitor.run("latency")
    lead, hosts = house.lead, house.lead.cycle.state.hosts
    host = hosts["b"]
    house.agents.held = threading.Event()
    run = threading.Thread(target=house.monitor.scheduled, args=("latency",))
    house.agents.begun.clear()
    house.clock.us += MINUTE_US
    run.start()
    assert house.agents.begun.wait(PATIENCE_S)
    lead.post(ev.HostRemoved("b", "ann"))  # while it is measured
    house.board.forget_host("b")
    lead.post(ev.HostAdded(host))
    house.agents.held.set()
    run.join()
    assert house.network() == {}
    assert house.board.cells(LATENCY, hosts, MINUTE_US) == []
    assert (house.store.history.samples("a", "b"), house.store.history.cells()) == ([], [])
    house.clock.us += MINUTE_US
    lead.post(ev.HostUp("b", "boot", "1", 2, 1 << 34, (), "eth0", 10**9))
    house.monitor.run("latency")
    assert len(house.store.history.samples("a", "b")) == 1
    assert len(house.board.cells(LATENCY, lead.cycle.state.hosts, MINUTE_US)) == 4


def test_what_earlier_lives_left_of_meshes_and_hosts_is_forgotten(house: House) -> None:
    for mesh in ("latency", "mtu"):
        house.monitor.run(mesh)
    house.monitor.set_paused("throughput", "ann")
    history = house.store.history
    Board(history, house.clock, UTC).forget_others({"latency", "throughput"}, {"a", "b"})
    assert {c.mesh for c in history.cells()} == {"latency"}
    assert [s.mesh for s in history.mesh_states()] == ["latency", "throughput"]
    Board(history, house.clock, UTC).forget_others({"latency"}, {"a"})
    assert (history.cells(), history.latest()) == ([], [])


def test_who_represented_a_zone_for_a_while_is_not_missed(house: House) -> None:
    lead, service = house.lead, house.service()
    for name in "cd":
        lead.post(ev.HostAdded(builders.host(name, zone="z2", cpus=2)))

    def across() -> set[tuple[str, str, Status]]:
        house.clock.us += 4 * MINUTE_US
        for _ in range(LATENCY.attempts):
            house.monitor.run("latency")
        cells = service.cells(lead.cycle.state.hosts)
        return {
            (c.source, c.destination, c.status)
            for c in cells
            if {"a", "b"} & {c.source} and c.check == "loss"
        }

    lead.post(ev.HostDown("c", "gone"))
    assert ("a", "d", Status.OK) in across()
    lead.post(ev.HostUp("c", "boot", "1"))
    found = across()
    assert ("a", "c", Status.OK) in found
    assert not any("d" in pair for pair in found)
    lead.post(ev.HostDown("b", "gone"))  # its pairs are still meant
    assert ("a", "b", Status.UNKNOWN) in across()


def test_maintenance_marks_cells_and_ends(house: House) -> None:
    window = HostWindow(parse_window("1970-01-01T00:00/1970-01-01T00:10"), hosts=("b",))
    house = House(LATENCY, windows=[window])
    house.monitor.run("latency")
    assert house.status(LATENCY, "delay") is Status.MAINTENANCE
    house.clock.us += 11 * MINUTE_US
    house.monitor.run("latency")
    assert house.status(LATENCY, "delay") is Status.OK


def test_what_cannot_be_is_left_out_and_told(house: House) -> None:
    house.agents.oneway |= {"jitter_forward_us": 10**12}
    assert house.monitor.run("latency").failed == 1
    assert house.network()[("a", "b")].loss_pct is None
    assert house.network()[("b", "a")].loss_pct == 50.0  # the other direction is sound
    (sample,) = house.store.history.samples("a", "b")
    assert sample.values == {}
    assert "impossible" in sample.failed or "not a number" in sample.failed


def test_a_probe_that_sent_nothing_has_failed_and_the_run_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_probe, "REACHED_S", 0.01)
    house.agents.oneway |= {"received": 0, "sent": 0}
    assert house.monitor.run("latency").failed == 1
    assert house.status(LATENCY, "loss") is Status.NOT_RUN  # until it has failed often enough


def test_a_clock_that_is_set_during_a_probe_tells_no_delay(house: House) -> None:
    house.agents.oneway["forward_us"] = {"median": -90_000}
    house.monitor.run("latency")
    assert house.network()[("a", "b")].delay_us is None
    house.agents.oneway["forward_us"] = {"median": -30}  # within the clocks' error
    house.monitor.run("latency")
    assert house.network()[("a", "b")].delay_us == 0


@pytest.mark.parametrize(
    "told",
    [
        {"forward_us": {"median": 18_000_000_000}, "backward_us": {"median": -18_000_000_000}},
        {"forward_us": {"min": 90, "median": 100, "max": 18_000_000_000}, "jitter_forward_us": 9_000_000_000},
        {"rtt_us": {"median": -18_000_000_000}},
    ],
)
def test_a_clock_that_is_set_by_hours_costs_the_delays_of_a_try_and_not_its_loss(
    house: House, told: dict[str, Any]
) -> None:
    house.agents.oneway.update(told)
    assert house.monitor.run("latency").failed == 0
    for way in (("a", "b"), ("b", "a")):
        known = house.network()[way]
        assert (known.delay_us, known.jitter_us, known.failures) == (None, None, 0)
        assert known.loss_pct is not None


def test_runs_take_turns_with_the_rounds_and_cover_all_pairs() -> None:
    mesh = replace(LATENCY, rounds=2)
    house = House(mesh, hosts=8)
    pairs: list[int] = []
    for _ in range(4):
        pairs.append(house.monitor.run("latency").measured)
    assert pairs == [8, 8, 8, 8]
    assert len(house.network()) == 8 * 7
    assert house.monitor.every_us(mesh) == 4 * MINUTE_US  # 7 rounds, 2 at a time
    assert house.network()[("a", "b")].fresh_us == 4 * MINUTE_US
    assert house.monitor.run("latency", everything=True).measured == 28


def test_a_mesh_runs_once_at_a_time_and_pauses_are_remembered(house: House) -> None:
    house.agents.held = threading.Event()
    run = threading.Thread(target=house.monitor.scheduled, args=("latency",))
    run.start()
    assert house.agents.begun.wait(PATIENCE_S)
    with pytest.raises(Conflict, match="being run already"):
        house.monitor.run("latency")
    house.monitor.set_paused("latency", "ann")  # during the run
    house.agents.held.set()
    run.join()
    assert house.store.history.mesh_states()[0].paused_by == "ann"
    assert house.store.history.mesh_states()[0].measured == 1
    with pytest.raises(NotFound, match="no mesh 'nope'"):
        house.monitor.run("nope")


def test_a_pause_that_comes_while_the_end_of_a_run_is_written_is_remembered(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, pauses = house.store.history.put_mesh_state, []

    def slowly(state: MeshState) -> None:
        if not pauses:
            pauses.append(threading.Thread(target=house.monitor.set_paused, args=("latency", "ann")))
            pauses[0].start()
            pauses[0].join(0.1)  # so long it has time to be written first, if it can
        write(state)

    monkeypatch.setattr(house.store.history, "put_mesh_state", slowly)
    house.monitor.run("latency")
    pauses[0].join()
    assert house.monitor.state("latency").paused_by == "ann"
    assert house.store.history.mesh_states()[0].paused_by == "ann"


def test_malformed_meshes_are_told_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Given:
        interval_s, throughput_interval_s, probe_count = 60.0, 3600.0, 20
        source: Sequence[dict[str, Any]] = ()
        archive: Sequence[dict[str, Any]] = ({"name": "out", "url": "http://a.test", "op": "get"},)
        mesh: Sequence[dict[str, Any]] = (
            {"name": "good"},
            {"name": "bad", "schedul": "every 1m"},
            {"name": "good"},
            {"nme": "x"},
        )
        maintenance = ({"when": "sun 02:00-04:00"}, {"when": "someday"})

    found = meshes_of(Given(), lambda mesh: 1)
    assert [m.name for m in found.meshes] == ["good"]
    assert len(found.windows) == 1
    assert [name for name, _ in found.malformed] == ["bad", "good", "?", "maintenance"]
    assert (found.archives, [name for name, _ in found.malformed_archives]) == ((), ["out"])
    assert "Did you mean 'schedule'?" in found.malformed[0][1]
    assert "Did you mean" in caplog.text
    Given.mesh = ()
    assert [m.name for m in meshes_of(Given(), lambda mesh: 1).meshes] == ["latency", "throughput", "mtu"]


def test_a_mistake_in_rm_toml_does_not_let_what_it_hides_be_forgotten() -> None:
    ma = {"name": "ma", "kind": "esmond", "url": "http://ma.test"}

    class Given:
        interval_s, throughput_interval_s, probe_count = 60.0, 3600.0, 20
        mesh: Sequence[dict[str, Any]] = ({"name": "good"}, {"name": "bad", "schedul": "every 1m"})
        maintenance = ({"when": "someday"},)
        source = (ma, {**ma, "name": "other", "url": "ftp"})
        archive = ()

    found = meshes_of(Given(), lambda mesh: 1).grids()
    assert found is not None
    assert found > {"good", "bad", "esmond:ma", "esmond:other", "maddash:other"}
    Given.mesh = ({"name": "b ad"},)  # which one is meant cannot be told
    assert meshes_of(Given(), lambda mesh: 1).grids() is None
