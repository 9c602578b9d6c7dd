"""pSConfig files: their tasks become meshes, our meshes their tasks, and there and back is the same."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rm.adapters.sources.iso import iso_of, seconds_of
from rm.adapters.sources.psconfig import ENDS, document_of, tables_of, toml_of
from rm.adapters.sources.psconfig_archives import archives_of
from rm.api.monitoring import Mesh as Listed
from rm.cli.main import rmx
from rm.core.monitoring.archive import parse_archive
from rm.core.monitoring.mesh import Every, Mesh, parse_mesh
from rm.core.monitoring.pairing import Pairing
from rm.errors import UsageError
from rm.typed import convert
from tests import builders
from tests.fake_service import serving
from tests.monitored import House
from tests.pscheduler_schemas import SPECS, must_fit

HOSTS = [builders.host(n, address=f"10.0.0.{i}") for i, n in enumerate(("gpu1", "gpu2", "gpu3"), 1)]
DOCUMENT: dict[str, Any] = {
    "addresses": {
        "one": {"address": "10.0.0.1"}, "two": {"address": "GPU2"}, "three": {"address": "10.0.0.3"},
        "far": {"address": "ps.example.org"},
    },
    "groups": {
        "all": {"type": "mesh", "addresses": [{"name": n} for n in ("one", "two", "three", "far")]},
        "sides": {"type": "disjoint", "a-addresses": [{"name": "one"}], "b-addresses": [{"name": "two"}]},
        "alone": {"type": "list", "addresses": [{"name": "one"}]},
        "pair": {"type": "list", "addresses": [{"name": "one"}, {"name": "two"}]},
        "most": {
            "type": "mesh", "addresses": [{"name": n} for n in ("one", "two", "three")],
            "excludes": [
                {"local-address": {"name": "one"}, "target-addresses": [{"name": "two"}, {"name": "three"}]},
                {"local-address": {"name": "two"}, "target-addresses": [{"name": "one"}]},
            ],
        },
        "odd": {"type": "disjoint", "unidirectional": True, "a-addresses": [{"name": "one"}],
                "b-addresses": [{"name": "two"}, {"class": "others"}]},
    },
    "tests": {
        "bw": {"type": "throughput", "spec": {"dest": "x", "duration": "PT5S", "bandwidth": 2e8}},
        "lat": {"type": "latency", "spec": {"packet-count": 100, "packet-interval": 0.02}},
        "disk": {"type": "disk-to-disk", "spec": {}},
        "hub": {"type": "latency", "spec": {"source": "{% address[0] %}", "dest": "10.0.0.3"}},
        "away": {"type": "latency", "spec": {"source": "{% address[0] %}", "dest": "ps.example.org"}},
    },
    "schedules": {
        "4h": {"repeat": "PT4H", "slip": "PT10M", "sliprand": True},
        "1m": {"repeat": "PT1M", "slip": "PT20S"},
        "bad": {"repeat": "often"},
        "till": {"repeat": "PT1M", "until": "P1D", "max-runs": 5},
    },
    "tasks": {
        "Throughput all": {"group": "all", "test": "bw", "schedule": "4h", "archives": ["x"]},
        "sides": {"group": "sides", "test": "lat", "schedule": "1m"},
        "alone": {"group": "alone", "test": "lat", "schedule": "1m"},
        "disk": {"group": "all", "test": "disk", "schedule": "1m"},
        "often": {"group": "all", "test": "lat", "schedule": "bad"},
        "lost": {"group": "nowhere", "test": "lat"},
        "hub": {"group": "pair", "test": "hub", "schedule": "till", "contexts": [["x"]], "tools": ["owping"]},
        "away": {"group": "pair", "test": "away"},
        "most": {"group": "most", "test": "lat", "schedule": "1m"},
        "odd": {"group": "odd", "test": "lat", "schedule": "1m"},
    },
}  # fmt: skip


def pairs_of(mesh: Mesh) -> set[tuple[str, ...]]:
    pairing = Pairing(mesh, HOSTS)
    rounds = [pairing.round(n) for n in range(len(pairing))]
    pairs = [tuple(sorted((a.name, b.name))) for pairs in rounds for a, b in pairs]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def test_tasks_become_meshes_and_the_rest_is_told() -> None:
    tables, said = tables_of(DOCUMENT, HOSTS)
    assert [t["name"] for t in tables] == ["Throughput-all", "sides", "hub", "most", "odd"]
    mesh = parse_mesh(tables[0])
    assert mesh.hosts == ("gpu1", "gpu2", "gpu3")
    assert (mesh.schedule, mesh.tests, mesh.between) == (Every(4 * 3600 * 10**6), ("throughput",), "all")
    assert (mesh.jitter_us, mesh.slip_us, mesh.duration_us) == (600 * 10**6, 0, 5 * 10**6)
    assert mesh.rate_bps == 200_000_000
    other = parse_mesh(tables[1])
    assert (other.packets, other.spacing_us, other.slip_us) == (100, 20_000, 20 * 10**6)
    text = "\n".join(said)
    for part in (
        "ps.example.org is not one of our hosts", "'list' needs a test that names the other end",
        "no test of the type 'disk-to-disk'", "'often' is not a duration", "there is no 'nowhere'",
        "'away' is left out: on one side", "'hub' names contexts",
        "'hub' names tools", "without the until and max-runs", "leaves out one direction (gpu1 to gpu3)",
        "from a to b only", "{'class': 'others'} names a class of hosts",
        "rm runs it every 4h",
    ):  # fmt: skip
        assert part in text
    hub, most = parse_mesh(tables[2]), parse_mesh(tables[3])
    assert (other.hosts, other.towards) == (("gpu1",), ("gpu2",))
    assert (hub.hosts, hub.towards) == (("gpu1", "gpu2"), ("gpu3",))
    assert most.without == {frozenset(("gpu1", "gpu2"))}
    assert pairs_of(other) == {("gpu1", "gpu2")}
    assert pairs_of(hub) == {("gpu1", "gpu3"), ("gpu2", "gpu3")}
    assert pairs_of(most) == {("gpu1", "gpu3"), ("gpu2", "gpu3")}
    assert tomllib.loads(toml_of(tables)) == {"monitor": {"mesh": tables}}


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        (
            {"type": "throughput", "spec": {"udp": True, "parallel": 4}},
            ["rm does by TCP", "has parallel"],
        ),
        ({"type": "throughput", "spec": {"duration": "PT30S"}}, ["for a second, not for PT30S"]),
        ({"type": "trace", "spec": {"probe-type": "icmp", "hops": 9}}, ["traces by icmp", "has hops in"]),
        ({"type": "clock", "spec": {}}, ["asks for clocks over HTTP"]),
        ({"type": "rtt", "spec": {"length": 1000, "ttl": 9}}, ["ICMP echoes", "has length, ttl in its test"]),
    ],
)
def test_what_rm_does_otherwise_is_told(test: dict[str, Any], parts: list[str]) -> None:
    document = {**DOCUMENT, "tests": {"t": test}, "tasks": {"one": {"group": "all", "test": "t"}}}
    (table,), said = tables_of(document, HOSTS)
    for part in parts:
        assert part in "\n".join(said)
    assert table["schedule"] == "every 4h"


def test_continuous_latency_is_continuous_here_and_there() -> None:
    spec = {"packet-interval": 0.05, "packet-timeout": 2, "duration": "P1D", **ENDS}
    tasks = {"bg": {"group": "all", "test": "t"}, "set": {"group": "all", "test": "t", "schedule": "1m"}}
    tests = {"t": {"type": "latencybg", "spec": spec}}
    (table, other), said = tables_of({**DOCUMENT, "tests": tests, "tasks": tasks}, HOSTS)
    mesh = parse_mesh(table)
    assert (mesh.tests, mesh.packets, mesh.spacing_us, mesh.peers) == (("latencybg",), 600, 50_000, 0)
    assert parse_mesh({**other, "name": "bg"}) == mesh
    assert "schedule" not in table
    text = "\n".join(said)
    assert "Task 'set' has a schedule; rm measures without a pause" in text
    assert "has packet-timeout in its test, which rm does not use" in text
    service = House(mesh).service()
    (row,) = asyncio.run(service.meshes())["meshes"]
    shown = document_of([convert(row, Listed)], {"a": "10.0.0.1", "b": "10.0.0.2"})
    task = shown["tasks"]["bg"]
    test = shown["tests"][task["test"]]
    assert (task.get("schedule"), shown["schedules"]) == (None, {})
    assert (test["type"], test["spec"]["packet-count"], test["spec"]["packet-interval"]) == (
        "latencybg", 600, 0.05,
    )  # fmt: skip
    must_fit(resolved(test["spec"]), SPECS["latencybg"])


def resolved(spec: dict[str, Any]) -> dict[str, Any]:
    """As pSConfig's agent fills it in."""
    return {key: "10.0.0.1" if key in ("source", "dest") else value for key, value in spec.items()}


SERVICES: dict[str, Any] = {
    "addresses": DOCUMENT["addresses"],
    "groups": {
        "each": {"type": "list", "addresses": [{"name": "one"}, {"name": "two"}, {"name": "far"}]},
        "mesh": {"type": "mesh", "addresses": [{"name": "one"}, {"name": "two"}]},
    },
    "tests": {
        "names": {"type": "dns", "spec": {
            "host": "{% address[0] %}", "query": "www.example.org", "record": "aaaa",
            "nameserver": "10.0.0.53", "timeout": "PT3S",
        }},
        "page": {"type": "http", "spec": {
            "schema": 2, "host": "10.0.0.3", "url": "https://www.example.org/up", "parse": "fine",
            "always-succeed": True,
        }},
        "peer": {"type": "dns", "spec": {"query": "{% address[1] %}", "record": "a"}},
        "way": {"type": "trace", "spec": {"source": "{% address[0] %}", "dest": "{% address[1] %}"}},
    },
    "schedules": {"1m": {"repeat": "PT1M"}},
    "archives": {
        "central": {
            "archiver": "http", "ttl": "P1D", "runs": "all", "schema": 2,
            "data": {
                "schema": 3, "_url": "https://ma.example.org/logstash", "op": "put", "bind": "10.0.0.1",
                "_headers": {"x-ps-observer": "{% scheduled_by_address %}", "Authorization": "c2VjcmV0"},
                "retry-policy": [{"attempts": 5, "wait": "PT1M"}],
            },
        },
        "bus": {"archiver": "rabbitmq", "data": {"_url": "amqp://x"}},
        "cut": {"archiver": "http", "data": {"_url": "http://x"}, "transform": {"script": "."}},
    },
    "tasks": {
        "names": {"group": "each", "test": "names", "schedule": "1m", "archives": ["central", "bus"]},
        "page": {"group": "each", "test": "page", "schedule": "1m", "archives": ["central", "cut", "none"]},
        "peer": {"group": "mesh", "test": "peer", "schedule": "1m"},
        "way": {"group": "mesh", "test": "way", "schedule": "1m"},
    },
}  # fmt: skip


def test_tests_of_services_are_of_each_host() -> None:
    tables, said = tables_of(SERVICES, HOSTS)
    names, page, way = map(parse_mesh, tables)
    assert (names.tests, names.hosts, names.service.query) == (("dns",), ("gpu1", "gpu2"), "www.example.org")
    assert (names.service.record, names.service.nameserver) == ("aaaa", "10.0.0.53")
    assert names.service.timeout_us == 3_000_000
    assert (page.tests, page.hosts, page.service.contains) == (("http",), ("gpu3",), "fine")
    assert pairs_of(way) == {("gpu1", "gpu2")}
    assert pairs_of(names) == {("gpu1", "gpu1"), ("gpu2", "gpu2")}
    text = "\n".join(said)
    assert "its query is a template" in text
    assert "'page' has always-succeed in its test, which rm does not use" in text


def test_archives_of_tasks_become_ours_without_their_secrets() -> None:
    mesh_of = dict[str, str]()
    _, said = tables_of(SERVICES, HOSTS, mesh_of)
    said.clear()
    (central,) = archives_of(SERVICES, mesh_of, said)
    archive = parse_archive(tomllib.loads(toml_of([central], "archive"))["monitor"]["archive"][0])
    assert (archive.url, archive.op, archive.runs) == ("https://ma.example.org/logstash", "put", "all")
    assert (archive.meshes, archive.retry_policy) == (("names", "page"), ((5, 60_000_000),))
    assert (archive.ttl_us, archive.headers_file) == (86_400_000_000, "/etc/rm/archive-central.json")
    text = "\n".join([*said, toml_of([central], "archive")])
    for part in (
        "'bus' is left out: rm has no archiver 'rabbitmq'", "'cut' is left out: it transforms results",
        "'none' is left out: there is no 'none'", "write its headers (Authorization, x-ps-observer)",
        "does not verify its certificate", "'central' has bind",
    ):  # fmt: skip
        assert part in text
    assert "c2VjcmV0" not in text


@pytest.mark.parametrize("headers", [["c2VjcmV0"], "c2VjcmV0", 5])
def test_archives_that_are_no_list_and_headers_that_are_no_object_are_said(headers: Any) -> None:
    archives = {"odd": {"archiver": "http", "data": {"_url": "https://ma.example.org/", "_headers": headers}}}
    tasks = {
        "sides": {**DOCUMENT["tasks"]["sides"], "archives": ["odd"]},
        "other": {**DOCUMENT["tasks"]["sides"], "archives": 5},
    }
    document, mesh_of = {**DOCUMENT, "tasks": tasks, "archives": archives}, dict[str, str]()
    said = tables_of(document, HOSTS, mesh_of)[1]
    assert archives_of(document, mesh_of, said) == []
    text = "\n".join(said)
    assert "The archives of task 'other' are left out: they are no list." in text
    assert "Archive 'odd' is left out: its '_headers' are no object" in text
    assert "c2VjcmV0" not in text


def test_a_task_that_is_left_out_sends_nothing_by_the_mesh_of_another() -> None:
    url = "https://ma.example.org/"
    archives = {name: {"archiver": "http", "data": {"_url": url + name}} for name in ("one", "two")}
    tasks = {
        "a b": {**DOCUMENT["tasks"]["sides"], "archives": ["one"]},
        "a-b": {**DOCUMENT["tasks"]["sides"], "archives": ["two"]},
    }
    document, mesh_of = {**DOCUMENT, "tasks": tasks, "archives": archives}, dict[str, str]()
    said = tables_of(document, HOSTS, mesh_of)[1]
    assert any("'a-b' is left out" in sentence for sentence in said)
    assert [(one["name"], one["meshes"]) for one in archives_of(document, mesh_of, said)] == [
        ("one", ["a-b"])
    ]


@pytest.mark.parametrize("document", [None, [], {}, {"tasks": []}, "x"])
def test_what_is_no_mesh_file_is_refused(document: Any) -> None:
    with pytest.raises(UsageError, match="not a pSConfig file"):
        tables_of(document, HOSTS)


@pytest.mark.parametrize("repeat", [1e999, 10**400, "PT" + "9" * 400 + "H"], ids=("inf", "huge", "text"))
def test_an_endless_schedule_is_told(repeat: Any) -> None:
    schedules = {**DOCUMENT["schedules"], "endless": {"repeat": repeat}}
    task = {**DOCUMENT["tasks"]["sides"], "schedule": "endless"}
    tables, said = tables_of({**DOCUMENT, "schedules": schedules, "tasks": {"odd": task}}, HOSTS)
    assert tables == []
    assert any("'odd' is left out" in s for s in said)


@pytest.mark.parametrize(
    "odd", [None, 7, "x", [], {"group": None, "test": 1}, {"group": "all", "test": "lat", "schedule": 3}]
)
def test_an_odd_task_does_not_stop_the_others(odd: Any) -> None:
    tables, said = tables_of({**DOCUMENT, "tasks": {"odd": odd, "sides": DOCUMENT["tasks"]["sides"]}}, HOSTS)
    assert [t["name"] for t in tables] == ["sides"]
    assert any("'odd' is left out" in s for s in said)


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT4H", 14_400), ("P1DT12H", 129_600), ("PT0.5S", 0.5), ("P1W", 604_800), (3, 3)]
)
def test_durations(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert seconds_of(iso_of(round(seconds * 1e6))) == seconds


@pytest.mark.parametrize("text", ["P", "PT", "4h", "", "PT4", None])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        seconds_of(text)


def test_there_and_back(tmp_path: Path) -> None:
    """Over the API and the command line, as a user would."""
    meshes = (
        Mesh(
            "lat", Every(90 * 10**6), tests=("latency",), rounds=0, between="all", packets=7, jitter_us=10**6
        ),
        Mesh(
            "star", Every(60 * 10**6), hosts=("a",), towards=("b", "c"), without=frozenset({frozenset("ac")})
        ),
        Mesh("both", Every(3600 * 10**6), tests=("throughput", "mtu"), rate_bps=10**9, slip_us=5 * 10**6),
        parse_mesh({"name": "dns", "tests": ["dns"], "query": "x.test", "record": "mx", "timeout_s": 4}),
        parse_mesh({"name": "web", "tests": ["http"], "url": "http://x.test/?a=b", "contains": "y"}),
        Mesh("ways", tests=("trace", "clock")),
    )
    house = House(*meshes, hosts=3)
    file = tmp_path / "mesh.json"
    with serving(tmp_path / "rm.sock") as daemon:
        daemon.service.inventory = dict(house.lead.cycle.state.hosts)
        daemon.service.monitoring = house.service()
        run = CliRunner()
        out = run.invoke(rmx, ["--socket", daemon.socket, "monitor", "export"])
        assert out.exit_code == 0, out.output
        document = json.loads(out.stdout)
        assert set(document["tasks"]) == {
            "lat", "star", "both-throughput", "both-mtu", "dns", "web", "ways-trace", "ways-clock"
        }  # fmt: skip
        for test in document["tests"].values():
            assert set(test["spec"]) <= set(SPECS[test["type"]]["properties"])
        file.write_text(out.stdout)
        back = run.invoke(rmx, ["--socket", daemon.socket, "monitor", "import", str(file)])
        assert back.exit_code == 0, back.output
        alone = run.invoke(rmx, ["--socket", daemon.socket, "monitor", "export", "lat"])
        assert set(json.loads(alone.stdout)["tasks"]) == {"lat"}
    found = {t["name"]: parse_mesh(t) for t in tomllib.loads(back.stdout)["monitor"]["mesh"]}
    lat, flow = found["lat"], found["both-throughput"]
    assert (lat.schedule, lat.tests, lat.packets, lat.jitter_us) == (
        meshes[0].schedule,
        ("latency",),
        7,
        10**6,
    )
    assert (lat.hosts, lat.towards) == (("a", "b", "c"), ())
    star = found["star"]
    assert (star.hosts, star.towards, star.without) == (("a",), ("b", "c"), meshes[1].without)
    assert [found[name].service for name in ("dns", "web")] == [meshes[3].service, meshes[4].service]
    assert (found["dns"].hosts, found["ways-clock"].tests) == (("a", "b", "c"), ("clock",))
    assert (flow.rate_bps, flow.slip_us, flow.duration_us) == (10**9, 5 * 10**6, 400_000)
