"""Results are documents of pScheduler's and records of OpenSearch's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rm.adapters import sources
from rm.adapters.archives.opensearch import index_of, kept_of
from rm.adapters.archives.pscheduler import document_of, record_of
from rm.core.monitoring.mesh import Mesh
from rm.core.monitoring.source import Source
from tests.archive_servers import OpenSearch, serving
from tests.archived import DNS, HTTP, MINUTE_US, PAIRS, measured
from tests.monitored import Prober
from tests.pscheduler_schemas import RECORD_OF, misfit, must_be_a_run, must_fit


def test_every_test_makes_a_document_that_fits_pschedulers_schemas() -> None:
    outcomes = measured(PAIRS, DNS, HTTP)
    documents = [document_of(outcome) for outcome in outcomes]
    for document in documents:
        must_be_a_run(json.loads(json.dumps(document)))
    assert {d["test"]["type"] for d in documents} == {*PAIRS.tests, "dns", "http"}
    assert len({d["id"] for d in documents}) == len(documents) == 2 * 5 + 2 * 2
    ends = {(d["test"]["spec"]["source"], d["test"]["spec"]["dest"]) for d in documents[:10]}
    assert ends == {("a.test", "b.test"), ("b.test", "a.test")}


def test_a_schema_notices_what_does_not_fit() -> None:
    document = document_of(measured(PAIRS)[0])
    for broken in (
        document | {"id": "7"},
        document | {"result": document["result"] | {"histogram-latency": {"fast": 1}}},
        document | {"result": document["result"] | {"packets-sent": -1}},
        document | {"test": {"type": "latency", "spec": {"source": "a"}}},
    ):
        with pytest.raises(misfit()):
            must_be_a_run(broken)


def test_the_numbers_are_in_the_units_of_pscheduler() -> None:
    found = {(o.test, o.source.name): document_of(o)["result"] for o in measured(PAIRS, DNS, HTTP)}
    there = found["latency", "a"]
    assert there["histogram-latency"] == {"0.28": 40, "0.30": 59}  # milliseconds
    assert (there["packets-sent"], there["packets-lost"], there["max-clock-error"]) == (100, 1, 0.04)
    back = found["latency", "b"]  # 99 questions arrived, and half of the answers did
    assert back["packets-sent"] - back["packets-lost"] == back["packets-received"] == 49
    assert back["histogram-latency"] == {"0.00": 1, "0.31": 49}
    assert found["throughput", "a"]["summary"]["summary"] == {
        "throughput-bits": 900.0, "throughput-bytes": 112.5
    }  # fmt: skip
    assert (found["mtu", "a"]["mtu"], found["mtu", "b"]["mtu"]) == (1500, 9000)
    assert [hop["ip"] for hop in found["trace", "a"]["paths"][0]] == ["10.0.0.1", "10.0.0.2"]
    clock = found["clock", "a"]
    assert (clock["difference"], clock["local"]["synchronized"]) == ("PT0.00025S", True)
    assert (found["dns", "a"]["record"], found["dns", "a"]["time"]) == (["192.0.2.7"], "PT0.0025S")
    assert (found["http", "b"]["status"], found["http", "b"]["found"]) == (200, True)


def test_what_failed_says_why() -> None:
    agents = Prober()
    agents.services |= {
        "dns": {"time_us": 5, "error": "NXDOMAIN"},
        "http": {"time_us": 6, "status": 503, "error": "status 503"},
    }  # fmt: skip
    agents.dumb = {"a", "b"}
    outcomes = measured(PAIRS, agents=agents)
    agents.dumb = set()
    outcomes += measured(DNS, HTTP, agents=agents)
    assert all(outcome.failed for outcome in outcomes if outcome.test != "trace")
    for outcome in outcomes:
        must_be_a_run(document_of(outcome))
    said = {o.test: document_of(o)["result"].get("error") for o in outcomes}
    assert said["dns"] == "dns: a of www.example.org at 10.0.0.53: NXDOMAIN"
    assert said["http"] == "http: http://10.0.0.9/status: status 503"
    assert said["mtu"] == "mtu: a is gone."


def test_delays_that_a_clock_made_which_was_set_go_to_no_archive() -> None:
    agents = Prober()
    agents.oneway["forward_us"] = {"min": 280, "median": 10**14, "p95": 10**14, "max": 10**14}
    outcomes = measured(Mesh("all", tests=("latency",), packets=100), agents=agents)
    assert [(one.source.name, one.failed, one.found["histogram"]) for one in outcomes] == [
        ("a", "", ()), ("b", "", ())
    ]  # fmt: skip
    for outcome in outcomes:
        document = document_of(outcome)
        must_be_a_run(document)
        assert document["result"]["packets-lost"] == outcome.found["lost"]


def test_what_rm_takes_for_impossible_goes_to_no_archive_as_a_result() -> None:
    agents = Prober()
    agents.oneway["jitter_forward_us"] = 10**14
    outcomes = measured(Mesh("all", tests=("latency",), packets=100), agents=agents)
    said = {one.source.name: (one.failed, dict(one.found)) for one in outcomes}
    assert said["b"][0] == ""
    assert "impossible" in said["a"][0]
    assert said["a"][1] == {}


@pytest.mark.parametrize(
    ("kind", "records", "shape"),
    [
        ("a", ["192.0.2.1", "192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
        ("cname", ["www.example.org"], "www.example.org"),
        ("mx", ["10 mx.example.org"], [{"pref": 10, "mx": "mx.example.org"}]),
        (
            "soa", ["ns.example.org root.example.org 7 1 2 3 4"],
            {"nameserver": "ns.example.org", "owner": "root.example.org", "serial": 7, "refresh": 1,
             "retry": 2, "expire": 3, "minimum": 4},
        ),
        ("txt", ["v=spf1 -all"], ["v=spf1 -all"]),
    ],
)  # fmt: skip
def test_records_have_the_shape_of_their_type(kind: str, records: list[str], shape: Any) -> None:
    assert record_of(records, kind) == shape
    must_fit(shape, RECORD_OF[kind])


def test_what_is_sent_to_opensearch_is_what_rm_reads_from_such_an_archive() -> None:
    outcomes = measured(PAIRS)
    opensearch = OpenSearch()
    opensearch.documents = [
        kept_of(outcome) for outcome in outcomes if outcome.test in ("latency", "throughput", "mtu")
    ]
    assert {index_of(o) for o in outcomes} >= {"pscheduler_latency", "pscheduler_trace", "pscheduler_clock"}
    end_us = max(o.ended_us for o in outcomes)
    with serving(*opensearch.routes()) as url:
        span = sources.Span(end_us - MINUTE_US, end_us + 1, {"a.test": "a", "b.test": "b"})
        found = sources.read(Source("ma", "opensearch", url), span)
    values = {s.source: s.values for s in found.samples}
    assert (found.odd, found.strangers, found.message) == (0, 0, "")
    assert values["a"] == {
        "loss_pct": 1.0, "delay_us": 300.0, "clock_error_us": 40.0, "bandwidth_bps": 900.0, "mtu_bytes": 1500,
    }  # fmt: skip
