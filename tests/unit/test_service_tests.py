"""Tests of DNS and HTTP by hosts, and traces and clocks by schedule: from the key in rm.toml to the alert."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rm.core.alerts.findings import network_findings
from rm.core.monitoring.cells import Status
from rm.core.monitoring.mesh import Mesh, Thresholds, parse_mesh
from rm.core.monitoring.pairing import Pairing
from rm.errors import ConfigError
from rm.web.routes.maddash import _grid
from tests.monitored import House, Prober

DNS = parse_mesh(
    {"name": "dns", "tests": ["dns"], "query": "www.example.org", "retry_attempts": 2, "dns_warn_ms": 20}
)
HTTP = parse_mesh({"name": "web", "tests": ["http"], "url": "http://10.0.0.9/", "retry_attempts": 1})
WAYS = Mesh("ways", tests=("trace",), attempts=1, thresholds=Thresholds(trace_warn_hops=2))
MINUTE_US = 60_000_000


def house_of(*meshes: Mesh, **answers: Any) -> House:
    agents = Prober()
    agents.services |= {
        "dns": {"time_us": 2_500, "records": ["192.0.2.7"]}, "http": {"time_us": 9_000, "status": 200}
    } | answers  # fmt: skip
    return House(*meshes, hosts=3, agents=agents)


def cells_of(house: House, mesh: Mesh) -> dict[tuple[str, str, str], tuple[Status, str]]:
    hosts = house.lead.cycle.state.hosts
    found = house.board.cells(mesh, hosts, house.monitor.every_us(mesh), Pairing(mesh, hosts.values()))
    return {(c.check, c.source, c.destination): (c.status, c.said) for c in found}


def findings_of(house: House, *meshes: Mesh, paused: str = "") -> set[tuple[str, str, str, str]]:
    hosts = house.lead.cycle.state.hosts
    cells = [c for mesh in meshes for c in house.board.cells(mesh, hosts, house.monitor.every_us(mesh))]
    found = network_findings(cells, set(), {paused})
    return {(f.condition, f.subject, f.level, f.frozen) for f in found}


def test_every_host_asks_by_itself_and_placement_learns_nothing_of_it() -> None:
    house = house_of(DNS, HTTP)
    for mesh in (DNS, HTTP):
        state = house.monitor.run(mesh.name)
        assert (state.measured, state.failed, state.cycle) == (3, 0, 1)
    assert cells_of(house, DNS) == {
        ("dns", host, host): (Status.OK, "dns answered in 2.5 ms") for host in "abc"
    }
    assert cells_of(house, HTTP)["http", "b", "b"] == (Status.OK, "http answered in 9 ms")
    assert house.network() == {}
    asked = [args for args in house.agents.probes() if args["kind"] == "dns"]
    assert asked[0] == {
        "kind": "dns", "query": "www.example.org", "record": "a", "nameserver": "", "timeout_us": 10_000_000
    }  # fmt: skip
    (sample,) = house.store.history.samples("a", "a", mesh="dns")
    assert (sample.values, sample.failed) == ({"dns_us": 2_500}, "")


def test_a_wrong_answer_is_critical_when_it_lasts_and_is_over_with_right_ones() -> None:
    house = house_of(DNS)
    house.monitor.run("dns")
    house.agents.services["dns"] = {"time_us": 70, "error": "NXDOMAIN"}
    for status in (Status.OK, Status.CRITICAL):
        house.clock.us += MINUTE_US
        state = house.monitor.run("dns")
        assert (state.measured, state.failed) == (0, 3)
        assert cells_of(house, DNS)["dns", "a", "a"][0] is status
    said = "dns: a of www.example.org at the usual name server: NXDOMAIN"
    assert cells_of(house, DNS)["dns", "a", "a"] == (Status.CRITICAL, said)
    (sample,) = house.store.history.samples("a", "a", limit=1)
    assert (sample.values, sample.failed) == ({}, said)
    assert findings_of(house, DNS) == {
        ("dns", f"{host} (dns)", level, "") for host in "abc" for level in ("warn", "critical")
    }
    assert all(frozen == "paused" for *_, frozen in findings_of(house, DNS, paused="dns"))
    house.agents.services["dns"] = {"time_us": 30_000, "records": ["192.0.2.7"]}
    for _ in range(2):
        house.clock.us += MINUTE_US
        house.monitor.run("dns")
    assert cells_of(house, DNS)["dns", "a", "a"] == (
        Status.WARN, "dns answered in 30 ms, a warning from 20 ms"
    )  # fmt: skip


def test_a_host_that_does_not_answer_is_unknown_and_no_fault_of_the_service() -> None:
    house = house_of(HTTP)
    del house.agents.services["http"]
    house.agents.dumb = {"a", "b", "c"}
    assert house.monitor.run("web").failed == 3
    assert cells_of(house, HTTP)["http", "a", "a"] == (Status.UNKNOWN, "http: a is gone.")
    assert findings_of(house, HTTP) >= {("unmeasured", "a (web)", "", "")}


def test_a_doubtful_answer_is_asked_for_again_before_the_next_run() -> None:
    slow = parse_mesh({"name": "dns", "tests": ["dns"], "query": "x.test", "schedule": "every 1h"})
    house = house_of(slow)
    house.monitor.run("dns")
    house.agents.services["dns"] = {"time_us": 70, "error": "SERVFAIL"}
    house.clock.us += MINUTE_US
    house.monitor.run("dns")
    for _ in range(2):
        house.clock.us += MINUTE_US
        house.monitor.confirm()
    assert cells_of(house, slow)["dns", "c", "c"][0] is Status.CRITICAL


def test_a_trace_keeps_the_way_and_counts_its_hops() -> None:
    house = house_of(WAYS)
    house.monitor.run("ways")
    status, said = cells_of(house, WAYS)["trace", "a", "b"]
    assert (status, said.partition(";")[0]) == (Status.WARN, "2 hops, a warning from 2 hops")
    assert "trace: a > 10.0.0.1 > b.test" in said
    house.agents.reached = False
    house.monitor.run("ways")
    status, said = cells_of(house, WAYS)["trace", "a", "b"]
    assert status is Status.UNKNOWN
    assert "then nobody up to b" in said


def test_clocks_are_compared_without_a_threshold_and_loss_is_not_judged() -> None:
    house = house_of(Mesh("clocks", tests=("clock",), attempts=1))
    house.agents.oneway |= {"offset_us": 2_540}
    house.monitor.run("clocks")
    found = cells_of(house, house.monitor.meshes["clocks"])
    assert found["clock", "a", "b"] == (Status.OK, "clocks differ by 2.5 ms at least")
    assert {check for check, *_ in found} == {"clock"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"tests": ["dns"]}, "a test 'dns' needs 'query'"),
        ({"tests": ["http"]}, "a test 'http' needs 'url'"),
        ({"tests": ["dns", "latency"], "query": "x"}, "a host tests dns by itself"),
        ({"tests": ["dns"], "query": "x", "towards": ["b"]}, "Leave out 'towards'"),
        ({"tests": ["dns"], "query": "x", "record": "any"}, "record: 'any' is not one of a, aaaa"),
        ({"tests": ["http"], "url": "ftp://x/"}, "url: it is no address of a page"),
        ({"tests": ["http"], "url": "http://user:pw@x/"}, "url: it is no address of a page"),
        ({"tests": ["latency"], "query": "x"}, "'query' is of tests of the kind dns"),
        ({"tests": ["dns"], "query": "x", "dns_warn_ms": 9, "dns_critical_ms": 1}, "dns would be critical"),
    ],
)
def test_keys_that_make_no_test_are_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_mesh({"name": "x"} | table)


def test_the_grids_show_on_their_diagonal_what_hosts_test_by_themselves() -> None:
    house = house_of(DNS)
    house.monitor.run("dns")
    hosts = house.lead.cycle.state.hosts
    cells = house.board.cells(DNS, hosts, MINUTE_US)
    told = {
        "hosts": [{"name": h.name, "zone": h.zone} for h in hosts.values()],
        "cells": [
            {"source": c.source, "destination": c.destination, "check": c.check, "status": int(c.status),
             "message": c.message, "checked_us": c.checked_us}
            for c in cells
        ],
    }  # fmt: skip
    body = _grid("dns", ["dns"], told).body
    assert isinstance(body, bytes)
    drawn = json.loads(body)["grid"]
    assert [drawn[i][i][0]["status"] for i in range(3)] == [0, 0, 0]
    assert drawn[0][1] == [None]
