"""Which pairs are measured, when, and what is recorded of a try that failed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core import events as ev
from rm.core.cycle import Cycle
from rm.core.engine import Policies
from rm.core.host import Host
from rm.core.lifecycle import Changes, Rules, apply
from rm.core.network import LinkStats
from rm.core.registry import load
from rm.core.state import ClusterState
from rm.daemon.monitor import Monitor, failed_try, mesh, rounds
from rm.errors import Unreachable
from tests import builders
from tests.fakes import ManualClock

ONEWAY = {
    "loss_forward_pct": 1.0,
    "loss_backward_pct": None,
    "forward_us": {"median": 300},
    "jitter_forward_us": 7,
}


def hosts_of(*sizes: int) -> list[Host]:
    return [builders.host(f"z{z}h{i}", f"z{z}") for z, size in enumerate(sizes) for i in range(size)]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_every_pair_of_a_zone_and_one_between_zones_is_measured_once(sizes: list[int]) -> None:
    hosts = hosts_of(*sizes)
    pairs = [frozenset((a.name, b.name)) for a, b in mesh(hosts, None)]
    inside = {frozenset((a.name, b.name)) for a in hosts for b in hosts if a.zone == b.zone and a != b}
    assert len(pairs) == len(set(pairs)) == len(inside) + len(sizes) * (len(sizes) - 1) // 2
    assert inside <= set(pairs)
    assert {frozenset((a.name, b.name)) for a, b in mesh(hosts, "z0")} == {
        p for p in inside if all(n.startswith("z0") for n in p)
    }


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_no_host_is_in_two_probes_at_once_and_no_pair_is_left_out(sizes: list[int]) -> None:
    pairs = mesh(hosts_of(*sizes), None)
    told = list(rounds(pairs))
    for matching in told:
        names = [h.name for pair in matching for h in pair]
        assert len(names) == len(set(names))
    assert sorted(map(str, pairs)) == sorted(str(p) for matching in told for p in matching)


class Lead:
    """The leader's inbox over a state of its own."""

    def __init__(self, *events: ev.Event) -> None:
        policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies)
        self.posted: list[ev.Event] = []
        self._lock = threading.Lock()
        for event in events:
            self.post(event)

    def post(self, event: ev.Event) -> None:
        with self._lock:
            self.posted.append(event)
            apply(self.cycle.state, event, 5, Rules(), Changes())

    def ask(self, question: Callable[[Cycle, int], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            future.set_result(question(self.cycle, 5))
        return future


class Prober:
    """Agents that answer at once; `deaf` hosts do not reflect, `dumb` ones cannot probe."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.deaf: set[str] = set()
        self.dumb: set[str] = set()
        self.monitor: Monitor | None = None

    def call(self, name: str, op: str, timeout_s: float = 10, **args: Any) -> Future[dict[str, Any]]:
        self.asked.append((name, op, args))
        future: Future[dict[str, Any]] = Future()
        if op == "reflect" and name in self.deaf:
            future.set_exception(Unreachable(f"{name} is gone."))
            assert self.monitor is not None
            self.monitor.heard(name, {"port": args["port"]})  # it began to listen, then went away
        elif op == "reflect":
            assert self.monitor is not None
            self.monitor.heard(name, {"port": args["port"]})
        elif op == "probe" and (name in self.dumb or self.deaf):
            future.set_exception(Unreachable(f"{name} is gone."))
        elif op == "probe" and args["kind"] == "throughput":
            future.set_result({"throughput_bps": 900})
        elif op == "probe":
            future.set_result(ONEWAY)
        else:
            future.set_result({"now_us": 0})
        return future

    def clock_offset_us(self, name: str) -> int | None:
        return {"a": 100, "b": 400}.get(name)

    def kinds(self) -> list[str]:
        return [args["kind"] for _, op, args in self.asked if op == "probe"]


class Settings:
    throughput_interval_s = 10.0
    probe_count = 3


class House:
    def __init__(self) -> None:
        self.lead = Lead(*(ev.HostAdded(builders.host(n, cpus=2)) for n in ("a", "b")))
        self.agents, self.clock = Prober(), ManualClock()
        self.monitor = Monitor(self.agents, self.lead, self.clock, Settings())  # type: ignore[arg-type]
        self.agents.monitor = self.monitor

    def network(self) -> dict[tuple[str, str], LinkStats]:
        return dict(self.lead.cycle.state.network)


@pytest.fixture
def house() -> House:
    return House()


def test_both_directions_of_a_pair_are_recorded(house: House) -> None:
    assert house.monitor.measure() == 1
    there, back = house.network()[("a", "b")], house.network()[("b", "a")]
    assert (there.loss_pct, there.delay_us, there.jitter_us, there.bandwidth_bps) == (1.0, 300, 7, 900)
    assert (back.loss_pct, back.delay_us, back.bandwidth_bps) == (100.0, None, 900)
    oneway = next(args for _, op, args in house.agents.asked if op == "probe" and args["kind"] == "oneway")
    assert oneway["offset_us"] == 300  # the clocks' difference makes one-way delays true


def test_throughput_is_measured_seldom_and_its_last_value_kept(house: House) -> None:
    house.monitor.measure()
    house.clock.us += 9_000_000
    house.monitor.measure()
    assert house.agents.kinds().count("throughput") == 2
    assert house.network()[("a", "b")].bandwidth_bps == 900
    house.clock.us += 1_000_000
    house.monitor.measure()
    assert house.agents.kinds().count("throughput") == 4


def test_links_that_jobs_use_are_not_filled(house: House) -> None:
    spec = builders.spec(ntasks=2)
    house.lead.post(ev.JobSubmitted(1, spec))
    house.lead.post(ev.JobPlaced(1, builders.placement("a", "b")))
    assert house.monitor.measure() == 1
    assert house.agents.kinds() == ["oneway"]


@pytest.mark.parametrize("who", ["deaf", "dumb"])
def test_a_failed_try_keeps_the_last_good_values(house: House, who: str) -> None:
    house.monitor.measure()
    good = house.network()
    getattr(house.agents, who).update({"a", "b"})
    assert house.monitor.measure() == 0
    assert house.network() == {k: failed_try(v) for k, v in good.items()}
    assert {s.failures for s in house.network().values()} == {1}
    assert failed_try(None) == LinkStats(failures=1)


def test_another_zone_is_left_alone(house: House) -> None:
    assert house.monitor.measure("elsewhere") == 0
    assert house.agents.kinds() == []
