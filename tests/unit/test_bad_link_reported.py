"""With the usual meshes and no thresholds of anybody's: a host's bad link is reported within minutes."""

import random
import threading
import time
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from rm.config import MonitorConfig
from rm.core.monitoring.cells import Cell, Status
from rm.core.monitoring.mesh import Mesh, usual
from rm.protocol.line import read_answer
from rm.protocol.request import Request
from tests.fakes import asked
from tests.monitored import MINUTE_US, House, Prober

BAD = "c"
LOSS, DELAY_US, RATE_BPS = 0.05, 23_000, 1_200_000
GOOD_DELAY_US, GOOD_RATE_BPS = 300, 95_000_000


class OneBadLink(Prober):
    """Agents whose tests with `BAD` find its link as it is, packets lost at random; the rest are good."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed, self._tries = seed, dict[tuple[str, str], int]()
        self.healed, self.throughputs = False, 0

    def call(self, name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        op, args = asked(request)
        if op != "probe" or args["kind"] not in ("oneway", "throughput"):
            return super().call(name, request, timeout_s)
        other = args["address"].removesuffix(".test")
        bad = BAD in (name, other) and not self.healed
        self.throughputs += args["kind"] == "throughput"
        future: Future[Any] = Future()
        told = (
            self._latency(name, other, args["count"], bad)
            if args["kind"] == "oneway"
            else {"throughput_bps": RATE_BPS if bad else GOOD_RATE_BPS, "bytes": 1, "duration_us": 400_000}
        )
        future.set_result(read_answer(type(request), msgspec.json.encode(told)))
        if args["kind"] == "oneway":
            self.count(args["port"], told)
        return future

    def _latency(self, name: str, other: str, sent: int, bad: bool) -> dict[str, Any]:
        number = self._tries[name, other] = self._tries.get((name, other), 0) + 1
        chance = random.Random(f"{self._seed} {name} {other} {number}")  # pairs are measured in any order
        forward, backward = (sum(chance.random() < LOSS for _ in range(sent)) if bad else 0 for _ in range(2))
        median = {"median": DELAY_US if bad else GOOD_DELAY_US}
        return {
            "sent": sent, "received": sent - forward - backward,
            "loss_forward_pct": 100 * forward / sent, "loss_backward_pct": 100 * backward / sent,
            "forward_us": median, "backward_us": median, "rtt_us": median, "clock_error_us": 40,
        }  # fmt: skip


def house_of(agents: OneBadLink) -> tuple[House, list[Mesh]]:
    """Six hosts in one zone, the meshes as rm.toml has them, each measured once."""
    config = MonitorConfig()
    meshes = usual(
        round(config.interval_s * 1e6), round(config.throughput_interval_s * 1e6), config.probe_count
    )
    house = House(*meshes, hosts=6, agents=agents)
    house.monitor.run("throughput")
    house.monitor.run("latency")
    return house, list(meshes[:2])


def cells_after(minutes: int, seed: int) -> list[Cell]:
    """Every cell so long after the first run."""
    house, meshes = house_of(OneBadLink(seed))
    for _ in range(minutes):
        house.clock.us += MINUTE_US
        house.monitor.run("latency")
        house.monitor.confirm()
    return cells_of(house, meshes)


def cells_of(house: House, meshes: list[Mesh]) -> list[Cell]:
    hosts = house.lead.cycle.state.hosts
    return [cell for mesh in meshes for cell in house.board.cells(mesh, hosts, house.monitor.every_us(mesh))]


def those_of_the_bad_link(cells: list[Cell], check: str) -> list[Cell]:
    return [c for c in cells if BAD in (c.source, c.destination) and c.check == check]


@pytest.mark.parametrize("seed", range(10))
def test_loss_and_delay_of_a_bad_link_are_reported_after_two_minutes_with_their_figures(seed: int) -> None:
    cells = cells_after(2, seed)
    delays = those_of_the_bad_link(cells, "delay")
    assert {(c.status, c.value) for c in delays} == {(Status.CRITICAL, DELAY_US)}
    assert all(c.message.startswith("delay 23 ms (peers 0.3 ms)") for c in delays)
    told = [c for c in those_of_the_bad_link(cells, "loss") if c.status in (Status.WARN, Status.CRITICAL)]
    assert len(told) >= 7  # of the ten directions; the packets of the others were lucky
    for cell in told:
        assert cell.value is not None
        assert 2.0 <= cell.value < 15.0  # few packets, so wide
        assert cell.message.startswith(f"loss {cell.value:.3g} % (")


def test_a_bandwidth_that_was_measured_before_those_of_the_peers_is_reported_after_three_minutes() -> None:
    assert {c.status for c in those_of_the_bad_link(cells_after(0, 1), "bandwidth")} == {Status.OK}
    slow = [c for c in those_of_the_bad_link(cells_after(3, 1), "bandwidth") if c.status is not Status.OK]
    assert {c.message for c in slow} == {"bandwidth 1.2 Mbit/s (peers 95 Mbit/s), critical below 28.5 Mbit/s"}


def test_a_run_goes_before_the_tests_between_runs() -> None:
    agents = OneBadLink(1)
    house, _ = house_of(agents)
    house.clock.us += 10 * MINUTE_US
    call, done = agents.call, list[int]()
    run = threading.Thread(target=lambda: done.append(house.monitor.run("throughput").measured))

    def meanwhile(name: str, request: Request[Any], timeout_s: float = 10) -> Future[Any]:
        if run.ident is None:
            run.start()
            while "throughput" not in house.monitor._wanted:
                time.sleep(0.001)
        return call(name, request, timeout_s)

    agents.call = meanwhile  # type: ignore[method-assign]
    before = agents.throughputs
    house.monitor.confirm()
    run.join()
    assert done == [15]  # all pairs
    assert agents.throughputs - before == 2 * (15 + 1), "one round of one pair was tested before it"


def test_a_bad_bandwidth_ends_minutes_after_its_cause_and_not_with_the_next_hourly_run() -> None:
    agents = OneBadLink(1)
    house, meshes = house_of(agents)

    def slow_after(minutes: int) -> tuple[int, int]:
        """So many directions with the bad link are slow, and so many tests of throughput were made."""
        before = agents.throughputs
        for _ in range(minutes):
            house.clock.us += MINUTE_US
            house.monitor.confirm()
        slow = those_of_the_bad_link(cells_of(house, meshes), "bandwidth")
        bad = sum(c.status is Status.CRITICAL for c in slow)
        return bad, agents.throughputs - before

    assert slow_after(10)[0] == 10
    assert slow_after(10) == (10, 2 * 10)  # each pair twice in ten minutes
    agents.healed = True
    assert slow_after(12)[0] == 0
    assert slow_after(20) == (0, 0)  # what is good has its hourly run


@pytest.mark.parametrize("seed", range(3))
def test_the_links_between_the_other_hosts_stay_green(seed: int) -> None:
    others = [c for c in cells_after(3, seed) if BAD not in (c.source, c.destination)]
    assert {c.status for c in others} == {Status.OK}
