"""Meshes of rm.toml, their rounds, maintenance windows, and when cells flip."""

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.model.host import Host
from rm.core.monitoring.maintenance import parse_host_window, parse_window
from rm.core.monitoring.mesh import Cron, Every, Mesh, Thresholds, parse_mesh, usual
from rm.core.monitoring.pairing import Pairing
from rm.errors import ConfigError
from tests import builders

sizes = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def hosts_of(*sizes: int) -> list[Host]:
    return [builders.host(f"z{z}h{i}", f"z{z}") for z, size in enumerate(sizes) for i in range(size)]


def names(pairing: Pairing) -> list[frozenset[str]]:
    return [frozenset((a.name, b.name)) for n in range(len(pairing)) for a, b in pairing.round(n)]


@given(sizes, st.sampled_from(["representatives", "all", "none"]))
def test_every_pair_that_is_meant_is_measured_once_and_no_host_twice_a_round(
    sizes: list[int], between: str
) -> None:
    hosts = hosts_of(*sizes)
    pairing = Pairing(Mesh("m", between=between), hosts)
    pairs = names(pairing)
    inside = {frozenset((a.name, b.name)) for a in hosts for b in hosts if a.zone == b.zone and a != b}
    across = {frozenset((a.name, b.name)) for a in hosts for b in hosts if a.zone != b.zone}
    assert len(pairs) == len(set(pairs))
    assert inside <= set(pairs) <= inside | across
    zones = len(sizes)
    expected = {"none": 0, "all": len(across), "representatives": zones * (zones - 1) // 2}
    assert len(pairs) == len(inside) + expected[between]
    for number in range(len(pairing)):
        busy = [h.name for pair in pairing.round(number) for h in pair]
        assert len(busy) == len(set(busy))


@given(
    one=st.lists(st.integers(0, 9), unique=True, min_size=1),
    other=st.lists(st.integers(0, 9), unique=True, min_size=1),
    left_out=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] != p[1])),
)
def test_one_side_is_measured_with_the_other_once_and_no_host_twice_a_round(
    one: list[int], other: list[int], left_out: list[tuple[int, int]]
) -> None:
    names = [[f"h{n}" for n in side] for side in (one, other)]
    without = frozenset(frozenset((f"h{a}", f"h{b}")) for a, b in left_out)
    mesh = Mesh("m", hosts=tuple(names[0]), towards=tuple(names[1]), without=without)
    pairing = Pairing(mesh, [builders.host(f"h{n}", zone=f"z{n % 3}") for n in range(10)])
    found: list[frozenset[str]] = []
    for number in range(len(pairing)):
        pairs = [frozenset((a.name, b.name)) for a, b in pairing.round(number)]
        assert len({host for pair in pairs for host in pair}) == 2 * len(pairs)
        found += pairs
    assert len(found) == len(set(found))
    assert set(found) == {frozenset((a, b)) for a in names[0] for b in names[1] if a != b} - without


@given(
    sizes,
    st.sampled_from(["representatives", "all", "none"]),
    st.integers(0, 4),
    st.sets(st.integers(0, 27)),
)
def test_what_is_meant_are_the_pairs_of_the_rounds(
    sizes: list[int], between: str, peers: int, down: set[int]
) -> None:
    hosts = hosts_of(*sizes)
    up = {h.name for i, h in enumerate(hosts) if i not in down}
    pairing = Pairing(Mesh("m", between=between, peers=peers), hosts, up)
    found = names(pairing)
    both = [(a, b) for a in hosts for b in hosts if a.name < b.name and {a.name, b.name} <= up]
    assert sorted(map(sorted, found)) == sorted(
        sorted((a.name, b.name)) for a, b in both if pairing.means(a, b)
    )


def test_in_a_large_zone_each_host_has_so_many_partners_all_over_it() -> None:
    hosts = hosts_of(1_000)
    pairing = Pairing(Mesh("m", peers=100), hosts)
    pairs = names(pairing)
    partners = Counter(host for pair in pairs for host in pair)
    assert len(pairing) == 100
    assert set(partners.values()) == {100}
    seat = {h.name: i for i, h in enumerate(hosts)}
    near = sum(abs(seat[a] - seat[b]) <= 100 for a, b in map(tuple, pairs))
    assert near < len(pairs) / 3  # most are no neighbours in the inventory
    assert len(Pairing(Mesh("m"), hosts_of(101))) == 101  # an odd number, of which one rests each round
    assert Pairing(Mesh("m", peers=0), hosts).means(hosts[0], hosts[1])


@given(st.integers(2, 60), st.integers(1, 8))
def test_a_run_costs_a_host_so_many_tests_however_many_hosts_there_are(size: int, rounds: int) -> None:
    pairing = Pairing(Mesh("m"), hosts_of(size))
    turn = pairing.turn(len(pairing) - 1, rounds)
    busy = [h.name for number in turn for pair in pairing.round(number) for h in pair]
    assert max(map(busy.count, busy)) <= rounds
    assert len(set(turn)) == min(rounds, len(pairing))


def test_a_mesh_selects_hosts_by_patterns_and_zones() -> None:
    mesh = parse_mesh({"name": "m", "hosts": ["z0h[01]", "z1*"], "zones": ["z0"]})
    assert [h.name for h in hosts_of(3, 2) if mesh.selects(h)] == ["z0h0", "z0h1"]


def test_a_mesh_from_its_table() -> None:
    mesh = parse_mesh(
        {
            "name": "gpu",
            "schedule": "*/5 * * * *",
            "tests": ["latency", "mtu"],
            "jitter_s": 2,
            "slip_s": 60,
            "retry_attempts": 5,
            "rate_mbps": 50,
            "loss_warn_pct": 0.1,
            "loss_critical_pct": 1,
            "maintenance": ["sun 02:00-04:00"],
        }
    )
    assert (mesh.schedule, mesh.jitter_us, mesh.slip_us, mesh.attempts, mesh.rate_bps) == (
        Cron("*/5 * * * *"),
        2_000_000,
        60_000_000,
        5,
        50_000_000,
    )
    assert mesh.thresholds == Thresholds(loss_warn_pct=0.1, loss_critical_pct=1.0)
    assert mesh.checks == ("loss", "delay", "mtu")
    assert parse_mesh({"name": "m", "schedule": "every 1h30m"}).schedule == Every(5_400_000_000)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "has the name None"),
        ({"name": "a b"}, "has the name 'a b'"),
        ({"name": "m", "schedul": "every 60s"}, "no key 'schedul'.*Did you mean 'schedule'"),
        ({"name": "m", "schedule": "every sixty"}, "'sixty' is not a duration"),
        ({"name": "m", "schedule": "every 1ms"}, "not between a second and a year"),
        ({"name": "m", "schedule": "* * *"}, "is not a schedule"),
        ({"name": "m", "schedule": 60}, "is not a schedule"),
        ({"name": "m", "tests": ["ping"]}, "there is no test 'ping'"),
        ({"name": "m", "tests": []}, "names no test"),
        ({"name": "m", "hosts": "all"}, "not a list of names"),
        ({"name": "m", "between": "some"}, "not one of representatives, all, none"),
        ({"name": "m", "rounds": -1}, "not a whole number from 0"),
        ({"name": "m", "rounds": True}, "not a whole number"),
        ({"name": "m", "jitter_s": float("nan")}, "not a number of seconds"),
        ({"name": "m", "retry_attempts": 0}, "from 1 to"),
        ({"name": "m", "loss_warn_pct": "1"}, "loss_warn_pct: '1' is not a threshold"),
        ({"name": "m", "loss_warn_pct": float("inf")}, "is not a threshold"),
        ({"name": "m", "loss_warn_pct": 5, "loss_critical_pct": 1}, "critical before it is a warning"),
        ({"name": "m", "bandwidth_warn_mbps": 5, "bandwidth_critical_mbps": 9}, "critical before"),
        ({"name": "m", "maintenance": ["sun 2-4"]}, "not a maintenance window"),
    ],
)
def test_what_is_wrong_with_a_mesh_is_said(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_mesh(table)


def test_the_usual_meshes_measure_as_rm_toml_says() -> None:
    latency, throughput, mtu = usual(60_000_000, 3_600_000_000, 20)
    assert (latency.schedule, latency.packets, latency.checks) == (Every(60_000_000), 20, ("loss", "delay"))
    assert (throughput.schedule, throughput.checks) == (Every(3_600_000_000), ("bandwidth",))
    assert mtu.checks == ("mtu",)


# -- maintenance


def at(text: str, zone: timezone = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1e6)


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        ("sun 02:00-04:00", ["2026-11-22T02:00", "2026-11-22T03:59"], ["2026-11-22T04:00"]),
        ("mon-fri 22:00-06:00", ["2026-11-20T23:00", "2026-11-21T05:59"], ["2026-11-21T23:00"]),
        ("mon-fri 22:00-06:00", ["2026-11-24T05:00"], ["2026-11-23T05:00", "2026-11-24T06:00"]),
        ("daily 03:00-03:30", ["2026-11-21T03:15"], ["2026-11-21T03:30"]),
        ("sat-mon 00:00-24:00", ["2026-11-21T00:00", "2026-11-23T23:59"], ["2026-11-24T00:00"]),
        ("2026-12-01T20:00/2026-12-02T06:00", ["2026-12-02T05:59"], ["2026-12-02T06:00", "2026-12-01T19:59"]),
        ("2026-12-01T20:00+01:00/2026-12-01T21:00+01:00", ["2026-12-01T19:30"], ["2026-12-01T20:30"]),
    ],
)  # fmt: skip
def test_maintenance_windows(window: str, inside: list[str], outside: list[str]) -> None:
    parsed = parse_window(window)
    assert all(parsed.covers(at(t), UTC) for t in inside)
    assert not any(parsed.covers(at(t), UTC) for t in outside)


def test_windows_are_in_the_zone_that_is_given() -> None:
    east = timezone(timedelta(hours=5))
    window = parse_window("sun 02:00-04:00")
    assert window.covers(at("2026-11-22T03:00", east), east)
    assert not window.covers(at("2026-11-22T03:00"), east)


@pytest.mark.parametrize(
    "text", ["", "sun", "sun 02:00", "sun 25:00-26:00", "sunday 1:00-2:00", "a/b", "2026-12-02/2026-12-01"]
)
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_window(text)


def test_a_window_of_hosts() -> None:
    window = parse_host_window({"when": "daily 00:00-24:00", "hosts": ["a*"], "zones": ["z1"]})
    assert window.covers(builders.host("a1", "z1"), 0, UTC)
    assert not window.covers(builders.host("b1", "z1"), 0, UTC)
    for wrong in ({}, {"when": "daily 1:00-2:00", "host": ["a"]}, {"when": "daily 1:00-2:00", "hosts": "a"}):
        with pytest.raises(ConfigError):
            parse_host_window(wrong)
