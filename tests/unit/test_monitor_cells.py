"""What stays of runs that take long, of tries that failed or cannot be true, and of hosts that went."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.monitoring.cells import Status
from rm.core.monitoring.maintenance import HostWindow, parse_window
from rm.core.monitoring.mesh import MeshState
from rm.daemon.monitoring import probe as monitor_probe
from rm.daemon.monitoring.board import Board
from rm.daemon.monitoring.meshes import meshes_of
from rm.errors import Conflict, NotFound
from rm.protocol.request import Request
from tests import builders
from tests.fakes import PATIENCE_S, asked
from tests.monitored import LATENCY, MINUTE_US, House


@pytest.fixture
def house() -> House:
    return House()


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


def test_malformed_meshes_are_told_and_the_rest_goes_on() -> None:
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
    said = list(found.left_out())
    assert said == [sentence for _, sentence in (*found.malformed, *found.malformed_archives)]
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
