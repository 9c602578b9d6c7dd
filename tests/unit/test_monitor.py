"""What a run of a mesh measures, and what is recorded of it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from rm.core.jobs import events as ev
from rm.core.model.host import Nic
from rm.core.monitoring.cells import Status
from rm.core.monitoring.mesh import Every, Mesh, Thresholds
from rm.daemon.monitoring import probe as monitor_probe
from tests import builders
from tests.fakes import PATIENCE_S
from tests.monitored import LATENCY, MINUTE_US, THROUGHPUT, House, Prober


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
