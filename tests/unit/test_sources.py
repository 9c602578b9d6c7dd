"""Archives of others: what is read, what is refused, and that one which is gone does not stop the rest."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from rm.adapters import sources as archives
from rm.adapters.sources import asking, opensearch
from rm.adapters.sources.asking import COMMAS_MAX, NESTED_MAX
from rm.cli import main
from rm.core.jobs import events as ev
from rm.core.model.network.links import LinkStats
from rm.core.monitoring.cells import Status
from rm.core.monitoring.history import Sample
from rm.core.monitoring.source import Source, parse_source
from rm.daemon.monitoring.sources import AT_ONCE, Sources, digest, news
from rm.errors import ConfigError, Conflict, NotFound, Unreachable
from tests import builders
from tests.archive_servers import Esmond, Maddash, OpenSearch, serving, tried
from tests.fake_service import serving as serving_rm
from tests.monitored import House

NOW_S = 1_790_000_000
NOW_US = NOW_S * 1_000_000
NAMES = {"10.0.0.1": "a", "10.0.0.2": "b", "a": "a", "b": "b"}
HOUR_US = 3_600_000_000


def source(kind: str, url: str, **more: Any) -> Source:
    return Source("ma", kind, url, **more)


def read(kind: str, url: str, **more: Any) -> archives.Found:
    return archives.read(source(kind, url, **more), archives.Span(NOW_US - HOUR_US, NOW_US, NAMES))


def values(found: archives.Found) -> dict[tuple[str, str, int], Mapping[str, float] | str]:
    """By direction and seconds before now."""
    return {
        (s.source, s.destination, (NOW_US - s.at_us) // 1_000_000): s.failed or s.values
        for s in found.samples
    }


# -- the kinds


def test_esmond_has_series_by_event_type() -> None:
    esmond = Esmond()
    point = NOW_S - 60
    esmond.series = {
        ("10.0.0.1", "10.0.0.2", "packet-loss-rate"): [
            {"ts": NOW_S - 7200, "val": 0.5}, {"ts": point, "val": 0.025},
        ],
        ("10.0.0.1", "10.0.0.2", "histogram-owdelay"): [{"ts": point, "val": {"0.3": 5, "0.35": 90, "9": 1}}],
        ("10.0.0.2", "10.0.0.1", "throughput"): [{"ts": point, "val": 9.4e9}],
        ("10.0.0.2", "10.0.0.1", "failures"): [{"ts": point + 30, "val": {"error": "no route to host"}}],
        ("10.0.0.2", "10.0.0.1", "path-mtu"): [{"ts": point, "val": 1500}],
        ("10.0.0.1", "198.51.100.7", "throughput"): [{"ts": point, "val": 1e9}],
    }  # fmt: skip
    with serving(*esmond.routes()) as url:
        found = read("esmond", url + "/esmond/perfsonar/archive")
    assert values(found) == {
        ("a", "b", 60): {"loss_pct": 2.5, "delay_us": 350.0},
        ("b", "a", 60): {"bandwidth_bps": 9.4e9, "mtu_bytes": 1500},
        ("b", "a", 30): "no route to host",
    }
    assert (found.strangers, found.odd, found.message) == (1, 0, "")
    assert {q["event-type"] for q in esmond.asked} >= {"packet-loss-rate", "throughput"}
    assert {s.mesh for s in found.samples} == {"esmond:ma"}


def test_a_failure_of_esmond_is_that_of_the_test_which_failed() -> None:
    esmond = Esmond()
    for n, kind in enumerate(("throughput", "latencybg")):
        key = ("10.0.0.1", "10.0.0.2", "failures") if n else ("10.0.0.2", "10.0.0.1", "failures")
        esmond.series[key] = [{"ts": NOW_S - 60, "val": {"error": "no route"}}]
        esmond.tests[key] = kind
    with serving(*esmond.routes()) as url:
        found = read("esmond", url + "/esmond/perfsonar/archive")
    checks = {(s.source, s.destination): s.checks for s in found.samples}
    assert checks == {("b", "a"): ("bandwidth",), ("a", "b"): ("delay", "loss")}


def test_what_of_esmond_fails_is_told_and_the_rest_is_read() -> None:
    esmond = Esmond()
    esmond.broken = {"throughput"}
    esmond.series = {
        ("10.0.0.1", "10.0.0.2", "packet-loss-rate"): [{"ts": NOW_S - 60, "val": 0.0}],
        ("10.0.0.1", "10.0.0.2", "histogram-owdelay"): [{"ts": NOW_S - 60, "val": "none"}],
        ("10.0.0.1", "10.0.0.2", "throughput"): [{"ts": NOW_S - 60, "val": 1.0}],
    }
    with serving(*esmond.routes()) as url:
        found = read("esmond", url + "/esmond/perfsonar/archive")
    assert values(found) == {("a", "b", 60): {"loss_pct": 0.0}}
    assert found.odd == 1
    esmond.series.clear()
    with serving(*esmond.routes()) as url:
        found = read("esmond", url + "/esmond/perfsonar/archive")
    assert "500" in found.message


def iso(before_s: int) -> str:
    return datetime.fromtimestamp(NOW_S - before_s, UTC).isoformat().replace("+00:00", "Z")


def test_opensearch_has_a_document_for_each_test() -> None:
    archive = OpenSearch()
    packets = {"sent": 600, "received": 597, "lost": 3, "loss": 0.005, "duplicated": 0, "reordered": 0}
    latency = {"min": 0.2, "max": 4.0, "mean": 0.31, "median": 0.3, "stddev": 0.1}
    archive.add(iso(90), "latencybg", {"packets": packets, "latency": latency, "max_clock_error": 0.05})
    archive.add(iso(80), "throughput", {"throughput": 9.1e9, "retransmits": 4})
    archive.add(iso(70), "rtt", {"rtt": {"min": "PT0.0005S", "mean": "PT0.0006S"}})
    archive.add(iso(60), "throughput", {"succeeded": False, "error": "the server is busy"})
    archive.add(iso(50), "throughput", {"throughput": 1.0}, b="10.9.9.9")
    archive.add(iso(40), "latency", {"packets": {"sent": 0, "lost": 0}})
    archive.add(iso(30), "trace", {"paths": []})
    archive.add(iso(9000), "throughput", {"throughput": 5.0})
    with serving(*archive.routes()) as url:
        found = read("opensearch", url)
    assert values(found) == {
        ("a", "b", 90): {"loss_pct": 0.5, "delay_us": 300.0, "clock_error_us": 50.0},
        ("a", "b", 80): {"bandwidth_bps": 9.1e9},
        ("a", "b", 70): {"rtt_us": pytest.approx(600.0)},
        ("a", "b", 60): "the server is busy",
    }
    assert (found.strangers, found.odd) == (1, 1)
    assert "pscheduler_throughput" in archive.searches[0]


def test_opensearch_has_results_as_pscheduler_made_them() -> None:
    archive = OpenSearch()
    latency = {
        "schema": 1, "packets-sent": 100, "packets-received": 98, "packets-lost": 2, "packets-reordered": 0,
        "max-clock-error": 1.5, "histogram-latency": {"0.25": 40, "0.31": 50, "12.5": 8},
    }  # fmt: skip
    archive.add(iso(90), "latency", latency)
    archive.add(iso(80), "latency", latency, spec={"bucket-width": 0.0001})
    archive.add(iso(70), "rtt", {"sent": 5, "lost": 0, "loss": 0, "mean": "PT0.0012S", "min": "PT0.001S"})
    archive.add(iso(60), "rtt", {"rtt": {"min": 0.001, "mean": 0.0012}, "packets": {"sent": 5}})
    archive.add(iso(50), "throughput", {"summary": {"summary": {"throughput-bits": 8.1e9}, "streams": []}})
    archive.add(iso(40), "mtu", {"mtu": 9000})
    archive.add(iso(30), "latency", {**latency, "histogram-latency": {"soon": 3}})
    archive.add(iso(20), "latency", {**latency, "histogram-latency": {"-0.2": 100}})
    archive.add(iso(10), "mtu", {"succeeded": False, "error": "x" * 10_000})
    with serving(*archive.routes()) as url:
        found = read("opensearch", url)
    told = values(found)
    assert told["a", "b", 90] == {"loss_pct": 2.0, "delay_us": pytest.approx(310.0), "clock_error_us": 1500.0}
    assert told["a", "b", 80]["delay_us"] == pytest.approx(31.0)  # type: ignore[index, call-overload]
    assert told["a", "b", 70] == told["a", "b", 60] == {"rtt_us": pytest.approx(1200.0)}
    assert (told["a", "b", 50], told["a", "b", 40]) == ({"bandwidth_bps": 8.1e9}, {"mtu_bytes": 9000})
    assert told["a", "b", 10] == "x" * 200
    assert found.samples[-1].checks == ("mtu",)
    assert found.odd == 1


def test_opensearch_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = OpenSearch()
    for n in range(2_500):
        archive.add(iso(3_000 - n), "throughput", {"throughput": n})
    with serving(*archive.routes()) as url:
        found = read("opensearch", url)
    assert [s.values["bandwidth_bps"] for s in found.samples] == list(range(2_500))
    archive.documents.clear()
    for n in range(1_500):  # of one instant
        archive.add(iso(100), "throughput", {"throughput": n}, b=f"10.0.0.{2 + n % 2}")
    archive.add(iso(50), "throughput", {"throughput": 7.0})
    with serving(*archive.routes()) as url:
        found = read("opensearch", url)
        assert found.message == ""
        monkeypatch.setattr(opensearch, "WINDOW", 1_000)
        some = read("opensearch", url)
    for one in (found, some):
        assert one.samples[-1].values == {"bandwidth_bps": 7.0}
    assert "More than 750 documents begin at" in some.message


def test_what_an_archive_names_must_be_an_address() -> None:
    archive = asking.Archive(source("esmond", "http://ma.example.org/esmond"))
    assert archive.at("https://elsewhere.example.org/a?b=1") == "http://ma.example.org/a?b=1"
    with pytest.raises(Unreachable, match="not an address"):
        archive.at("http://[")


def test_maddash_has_the_history_of_checks() -> None:
    server = Maddash(["a", "b", "elsewhere"], ["Loss", "Loss Reverse", "Throughput", "Latency"])
    server.checks = {
        ("a", "b", "Loss"): [
            tried(NOW_S - 60, "Average Loss is 0.300%", "0.3"),
            tried(NOW_S - 9000, "", "9"),
        ],
        ("a", "b", "Loss Reverse"): [tried(NOW_S - 55, "Average Loss is 1.000%", "1")],
        ("a", "b", "Throughput"): [tried(NOW_S - 50, "Average throughput is 9.400Gbps", "9.4")],
        ("b", "a", "Throughput"): [tried(NOW_S - 50, "Unable to contact MA", None, code=3)],
        ("b", "a", "Latency"): [tried(NOW_S - 40, "Average delay is 0.25ms", "0.25")],
        ("a", "elsewhere", "Loss"): [tried(NOW_S - 60, "", "0")],
    }
    with serving(*server.routes()) as url:
        found = read("maddash", url + "/maddash-webui")
        nothing = read("maddash", url, only=("Other",))
    assert values(found) == {
        ("a", "b", 60): {"loss_pct": 0.3},
        ("b", "a", 55): {"loss_pct": 1.0},
        ("a", "b", 50): {"bandwidth_bps": 9.4e9},
        ("b", "a", 50): "Unable to contact MA",
        ("b", "a", 40): {"delay_us": 250.0},
    }
    assert (found.strangers, found.odd, found.message) == (1, 0, "")
    assert nothing.samples == []
    assert "no grid 'Other'" in nothing.message


# -- archives that do not answer as they should


@pytest.mark.parametrize("kind", ["esmond", "opensearch", "maddash"])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("[1, 2", "JSON"),
        ('{"odd": 1}', "does not answer as"),
        ("[[[[", "JSON"),
        ("null", "does not answer as"),
    ],
)
def test_odd_answers_are_said(kind: str, answer: str, said: str) -> None:
    async def odd(_: web.Request) -> web.Response:
        return web.Response(text=answer, content_type="application/json")

    with serving(web.route("*", "/{rest:.*}", odd)) as url, pytest.raises(Unreachable, match=said):
        read(kind, url)


@pytest.mark.parametrize("kind", ["esmond", "opensearch", "maddash"])
@pytest.mark.parametrize("values", [b"[],", b"{},", b"1,"])
def test_a_short_answer_that_becomes_many_values_is_not_read(kind: str, values: bytes) -> None:
    """Some kilobytes, compressed, that kept all threads of the daemon waiting for half a minute."""
    most = COMMAS_MAX if values == b"1," else NESTED_MAX
    packed = gzip.compress(b"[" + values * (most + 1) + b"0]", 1)

    async def bomb(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=packed, headers=headers)

    said = "too many values"
    with serving(web.route("*", "/{rest:.*}", bomb)) as url, pytest.raises(Unreachable, match=said):
        read(kind, url, timeout_us=60_000_000)


@pytest.mark.parametrize("kind", ["esmond", "opensearch", "maddash"])
def test_silence_and_floods_are_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm.adapters.sources.asking.ANSWER_MAX", 200_000)

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"[" * 10_000)
        return response

    async def silence(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:  # never silent for long, and never done
            await answer.write(b"[")
            await asyncio.sleep(0.02)

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://192.0.2.1/")

    for handler, said, timeout_us in (
        (flood, "more than", 60_000_000),
        (silence, "too long", 200_000),
        (drip, "too long", 200_000),
        (elsewhere, "302", 60_000_000),
    ):
        with serving(web.route("*", "/{rest:.*}", handler)) as url, pytest.raises(Unreachable, match=said):
            read(kind, url, timeout_us=timeout_us)
    with pytest.raises(Unreachable, match="cannot be asked"):
        read(kind, "http://127.0.0.1:1")


def test_the_password_is_sent_and_a_missing_file_said(tmp_path: Path) -> None:
    seen = []

    async def search(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"hits": {"hits": []}})

    secret = tmp_path / "secret"
    secret.write_text("pass\n")
    with serving(web.post("/{rest:.*}", search)) as url:
        read("opensearch", url, user="rm", password_file=str(secret))
        with pytest.raises(ConfigError, match="password_file of source ma cannot"):
            read("opensearch", url, user="rm", password_file=str(tmp_path / "none"))
    assert seen == ["Basic cm06cGFzcw=="]


# -- the daemon


class Reader:
    """An archive whose answer the test holds."""

    def __init__(self) -> None:
        self.found = archives.Found()
        self.spans: list[tuple[int, int]] = []
        self.error: Unreachable | None = None

    def __call__(
        self, source: Source, since_us: int, until_us: int, names: Mapping[str, str]
    ) -> archives.Found:
        self.spans.append((since_us, until_us))
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture
def house() -> House:
    house = House()
    house.clock.us = NOW_US
    return house


def sources(house: House, reader: Any, *more: Source) -> Sources:
    all_ = [source("esmond", "http://ma.test"), *more]
    history = house.store.history
    return Sources(
        sources=all_,
        malformed=(),
        leader=house.lead,
        history=history,
        board=house.board,
        clock=house.clock,
        read=reader,
    )  # type: ignore[arg-type]


def sample(before_s: int, failed: str = "", **found: float) -> Sample:
    return Sample("a", "b", NOW_US - before_s * 1_000_000, "esmond:ma", found, failed)


def test_measurements_join_the_history_and_the_map(house: House) -> None:
    reader = Reader()
    one = sources(house, reader)
    reader.found.samples = [
        sample(90, loss_pct=1.0, delay_us=400), sample(60, loss_pct=2.0), sample(50, bandwidth_bps=1e9),
        sample(40, loss_pct=-1.0), sample(30, delay_us=float("nan")), sample(-7200, loss_pct=0.0),
    ]  # fmt: skip
    reading = one.read("ma")
    assert (reading.recorded, reading.refused) == (3, 3)
    assert "3 measurements are left out" in reading.message
    assert "impossible loss_pct: -1" in reading.message
    stats = house.network()[("a", "b")]
    assert (stats.loss_pct, stats.delay_us, stats.bandwidth_bps) == (2.0, 400, 1_000_000_000)
    assert stats.measured_at_us == NOW_US - 60_000_000
    assert stats.fresh_us == HOUR_US
    assert len(house.store.history.samples("a", "b", mesh="esmond:ma")) == 3
    assert reader.spans == [(NOW_US - HOUR_US, NOW_US)]
    house.clock.us += 300_000_000
    assert one.read("ma").recorded == 0  # the same again
    assert reader.spans[-1][0] == NOW_US - 50_000_000 - 600_000_000


def grid(house: House, one: Sources) -> dict[str, Status]:
    mesh = one.sources["ma"].grid
    cells = house.board.cells(mesh, house.lead.cycle.state.hosts, one.sources["ma"].expect_us)
    return {c.check: c.status for c in cells if (c.source, c.destination) == ("a", "b")}


def test_an_archive_is_a_grid_with_statuses_and_their_changes(house: House) -> None:
    reader = Reader()
    one = sources(house, reader)
    reader.found.samples = [sample(600 - 60 * n, loss_pct=0.0, delay_us=400) for n in range(3)]
    one.read("ma")
    assert grid(house, one) == {"loss": Status.OK, "delay": Status.OK}
    bad = [sample(300 - 60 * n, loss_pct=20.0) for n in range(3)]
    reader.found.samples += [*bad, sample(100, "no route", bandwidth_bps=-1.0)]
    one.read("ma")
    one.read("ma")  # the same again counts for nothing
    assert grid(house, one) == {"loss": Status.CRITICAL, "delay": Status.OK}
    (change,) = house.store.history.changes("esmond:ma")
    assert (change.check, change.status, change.at_us) == ("loss", Status.CRITICAL, bad[-1].at_us)
    reader.found.samples = [sample(90, delay_us=-40.0, loss_pct=0.0)]  # a clock is off; the loss is sound
    one.read("ma")
    assert house.network()[("a", "b")].loss_pct == 0.0
    house.clock.us += 4 * HOUR_US
    assert set(grid(house, one).values()) == {Status.UNKNOWN}


def test_a_run_names_the_pairs_that_failed_on_standard_error_and_counts_the_others(tmp_path: Path) -> None:
    house = House(hosts=3)
    with serving_rm(tmp_path / "rm.sock") as daemon:
        daemon.service.monitoring = house.service()
        run = ["--socket", daemon.socket, "monitor", "run"]
        assert CliRunner().invoke(main.rmx, [*run, "throughput", "--all"]).exit_code == 0
        house.clock.us += 1
        house.agents.dumb.update({"b"})  # it reflects what others send
        done = [CliRunner().invoke(main.rmx, [*run, mesh, "--all"]) for mesh in ("latency", "throughput")]
    assert (done[0].exit_code, done[0].stdout) == (1, "latency: 2 pairs measured, 1 failed\n")
    assert done[0].stderr.startswith("rmx: b - c: nothing is known of delay, loss")
    assert len(done[0].stderr.splitlines()) == 1
    # of one failure the grid says nothing yet
    assert "nothing is known of bandwidth: throughput: b is gone" in done[1].stderr


def test_the_grid_of_an_archive_is_shown_paused_and_read_like_a_mesh(house: House, tmp_path: Path) -> None:
    reader = Reader()
    reader.found.samples = [sample(60, loss_pct=50.0), sample(30, bandwidth_bps=1e9)]
    table = {
        "name": "ma", "kind": "esmond", "url": "http://ma.test", "retry_attempts": 1, "loss_warn_pct": 5,
        "maintenance": ["daily 00:00-00:01"],
    }  # fmt: skip
    with serving_rm(tmp_path / "rm.sock") as daemon:
        daemon.service.monitoring = house.service(parse_source(table), read=reader)

        def rmx(*words: str) -> str:
            done = CliRunner().invoke(main.rmx, ["--socket", daemon.socket, *words])
            assert done.exit_code == 0, done.output
            return str(done.output)

        assert "esmond:ma: 2 pairs measured, 0 failed" in rmx("monitor", "run", "esmond:ma")
        assert "1 a · w" in rmx("network", "--mesh", "esmond:ma")
        assert "1 a · o" in rmx("network", "--mesh", "esmond:ma", "--check", "bandwidth")
        assert "a warning from 5 %" in rmx("monitor", "history", "esmond:ma")
        assert "esmond:ma is paused" in rmx("monitor", "pause", "esmond:ma")
        (row,) = [m for m in json.loads(rmx("monitor", "list", "--json"))["meshes"] if m["kind"] == "esmond"]
        assert (row["state"], row["checks"], row["hosts"]) == ("paused", ["loss", "bandwidth"], ["a", "b"])
        assert "esmond" in rmx("monitor", "list")
        assert "esmond" not in rmx("monitor", "export")
    assert house.service(parse_source(table))._sources.state(parse_source(table)).paused_by


def test_a_restart_goes_on_where_it_stopped(house: House) -> None:
    house.store.history.record([sample(60, loss_pct=1.0)])
    reader = Reader()
    sources(house, reader).read("ma")
    assert reader.spans[0][0] == NOW_US - 660_000_000


def test_an_archive_never_hides_what_we_measured_later(house: House) -> None:
    own = LinkStats(loss_pct=0.0, delay_us=100, measured_at_us=NOW_US - 10_000_000, fresh_us=60_000_000)
    house.lead.post(ev.Measured("a", "b", own))
    reader = Reader()
    reader.found.samples = [
        sample(60, loss_pct=50.0),
        sample(30, failed="no route"),
        sample(20, bandwidth_bps=7.0),
    ]
    sources(house, reader).read("ma")
    assert house.network()[("a", "b")] == replace(
        own, bandwidth_bps=7, bandwidth_at_us=NOW_US - 20_000_000, bandwidth_fresh_us=HOUR_US
    )


def test_a_failed_test_costs_confidence_once(house: House) -> None:
    reader = Reader()
    one = sources(house, reader)
    reader.found.samples = [
        sample(90, loss_pct=0.0),
        sample(60, failed="no route"),
        sample(30, failed="no route"),
    ]
    one.read("ma")
    one.read("ma")
    assert house.network()[("a", "b")].failures == 2


def test_one_that_is_gone_says_so_and_the_others_go_on(house: House) -> None:
    server = Maddash(["a", "b"], ["Loss"])
    server.checks[("a", "b", "Loss")] = [tried(NOW_S - 60, "", "0.5")]

    def ask(source: Source, since_us: int, until_us: int, names: Mapping[str, str]) -> archives.Found:
        return archives.read(source, archives.Span(since_us, until_us, names))

    with serving(*server.routes()) as url:
        gone = Source("gone", "opensearch", "http://127.0.0.1:1")
        one = sources(house, ask, gone, Source("md", "maddash", url))
        one.scheduled("gone")
        one.scheduled("md")
    rows = {row["name"]: row for row in one.rows()["sources"]}
    assert "cannot be asked" in rows["gone"]["message"]
    assert rows["gone"]["read_us"] == 0
    assert (rows["md"]["message"], rows["md"]["recorded"], rows["md"]["read_us"]) == ("", 1, NOW_US)
    assert house.network()[("a", "b")].loss_pct == 0.5
    with pytest.raises(NotFound, match="no source 'x'"):
        one.read("x")


def test_a_daemon_that_is_too_busy_says_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sources(house, Reader())
    late: Future[Any] = Future()
    late.set_exception(TimeoutError())
    monkeypatch.setattr(house.lead, "ask", lambda question: late)
    one.scheduled("ma")
    assert [row["message"] for row in one.rows()["sources"]] == ["The daemon was too busy."]


def test_never_twice_at_once(house: House) -> None:
    def nested(*_: Any) -> archives.Found:
        with pytest.raises(Conflict):
            one.read("ma")
        return archives.Found()

    one = sources(house, nested)
    one.read("ma")


def test_loss_and_delay_of_different_instants_make_one_view() -> None:
    found = digest([sample(60, loss_pct=1.0), sample(50, delay_us=300.0), sample(70, delay_us=900.0)])
    assert [s.values for s in found] == [{"delay_us": 300.0, "loss_pct": 1.0}]
    assert news(None, sample(5, delay_us=3.0)) is None  # delay alone says nothing of loss
    known = LinkStats(loss_pct=2.0, measured_at_us=1)
    newer = news(known, sample(5, delay_us=3.0))
    assert newer is not None
    assert newer.values == {"loss_pct": 2.0, "delay_us": 3.0}


def test_ten_thousand_pairs_are_read_in_one_go_and_learnt_in_several(house: House) -> None:
    reader = Reader()
    names = [f"h{n}" for n in range(101)]
    for name in names:
        house.lead.post(ev.HostAdded(builders.host(name)))
    at_us = NOW_US - 1_000_000
    reader.found.samples = [
        Sample(a, b, at_us, "esmond:ma", {"loss_pct": 0.0}) for a in names for b in names if a != b
    ]
    assert sources(house, reader).read("ma").recorded == 10_100
    assert len(house.network()) == 10_100
    assert 0 < house.lead.longest <= AT_ONCE
