"""/metrics: Prometheus' own parsers read it, and the dashboard asks only for what is there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from rm.core.model.job import JobState
from rm.core.model.network.alignment import Rotation
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.scheduling.blocked import Blocked
from rm.core.sharing.ended import Ended, Sums
from rm.daemon.services.reasons import Reasons
from rm.errors import StoreError
from rm.web.metric_families import PAIRS_MOST, Told, families
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import PageSettings
from tests import builders
from tests.fake_page import HOSTILE, PERIOD_US, PageService
from tests.fake_service import Daemon, serving
from tests.fakes import PATIENCE_S

GRAFANA = Path(__file__).parents[2] / "packaging/grafana"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Monitoring:
    """Meshes and sources as the daemon's monitoring answers them."""

    async def meshes(self) -> dict[str, Any]:
        row = {
            "name": "latency", "statuses": {"ok": 18, "critical": 2}, "measured": 9, "failed": 1,
            "skipped": 0, "state": "paused", "ended_us": 5_000_000,
        }  # fmt: skip
        return {"meshes": [row]}

    async def sources(self) -> dict[str, Any]:
        good = {
            "name": "ma",
            "message": "",
            "recorded": 4,
            "refused": 1,
            "read_us": 7_000_000,
            "tried_us": 7_000_000,
        }
        gone = {
            "name": "old",
            "message": "It is gone.",
            "recorded": 0,
            "refused": 0,
            "read_us": 0,
            "tried_us": 7,
        }
        return {"sources": [good, gone]}


class Service(PageService):
    def __init__(self) -> None:
        super().__init__()
        self.monitoring = Monitoring()
        self.ended = [Ended(0, "physics", "alice", "", "", "h1", Sums(jobs=1), Sums(gpu_us=1))]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(tmp_path / "rm.sock", kind=Service) as daemon:
        submit = daemon.service.busy("high", HOSTILE, "low")  # type: ignore[attr-defined]
        asyncio.run_coroutine_threadsafe(submit, daemon.loop).result(PATIENCE_S)
        yield daemon


def get(socket: str, accept: str = "", page: bool = True) -> tuple[int, str, str]:
    """Status, type and text of /metrics, through the page's port or the daemon's socket."""

    async def main() -> tuple[int, str, str]:
        headers = {"Accept": accept} if accept else {}
        connector = None if page else aiohttp.UnixConnector(socket)
        runner, url = await serve_page(socket, "127.0.0.1:0", PageSettings(anonymous=True))
        try:
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get((url if page else "http://rm/") + "metrics", headers=headers) as answer,
            ):
                return answer.status, answer.headers["Content-Type"], await answer.text()
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def samples(text: str) -> Samples:
    return {(s.name, frozenset(s.labels.items())): s.value for f in parse(text) for s in f.samples}


def one(found: Samples, name: str, /, **labels: str) -> float:
    return found[(name, frozenset(labels.items()))]


def test_the_queue_is_counted_by_the_newest_reasons(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are no part of the jobs' records."""
    service = daemon.service
    (waits,) = (job for job in service.table.values() if job.state is JobState.PENDING)
    assert waits.reason is None
    newest = Reasons({waits.id: Reason(ReasonCode.PRIORITY, "waits")}, Blocked())
    monkeypatch.setattr(service, "jobs_and_reasons", lambda **asked: (service.jobs(**asked), newest))
    found = samples(get(daemon.socket)[2])
    queued = {labels: value for (name, labels), value in found.items() if name == "rm_queue_jobs"}
    assert queued == {frozenset({("reason", "Priority")}): 1}


def test_prometheus_reads_it_through_the_page(daemon: Daemon) -> None:
    status, kind, text = get(daemon.socket)
    found = samples(text)
    worst = max(p["loss_pct"] or 0.0 for p in daemon.service.network_service.pairs()) / 100
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert one(found, "rm_leader_epoch") == 3
    assert one(found, "rm_build_info", version="0.1.0") == 1
    assert one(found, "rm_hosts", state="UP") == 4
    assert one(found, "rm_hosts", state="DOWN") == 1
    assert one(found, "rm_hosts", state="DRAINED") == 0
    assert one(found, "rm_jobs", state="RUNNING") == 2
    assert one(found, "rm_queue_jobs", reason="NONE") == 1
    assert one(found, "rm_host_gpus_free", host="h1", zone="z1") == 1
    assert one(found, "rm_job_iterations_total", job_id="1") == 140
    assert one(found, "rm_job_iteration_seconds", job_id="1", stat="p99") == 0.23
    assert one(found, "rm_job_iteration_baseline_seconds", job_id="2") == PERIOD_US / 1e6
    assert one(found, "rm_job_info", job_id="2", name=HOSTILE, user="alice") == 1
    assert one(found, "rm_link_score", link="h1") == 100
    assert one(found, "rm_link_capacity_bytes_per_second", link="h1") * 8 == next(
        link["capacity_bps"] for link in daemon.service.network_service.links() if link["name"] == "h1"
    )
    assert one(found, "rm_link_rotation_ratio", link="h1", job_id="2") == 0.5
    assert one(found, "rm_pair_loss_ratio", source="h1", destination="h3") == worst > 0
    assert one(found, "rm_pair_delay_seconds", source="h1", destination="h2") == pytest.approx(76e-6)
    assert one(found, "rm_probe_success", source="h1", destination="k2") == 0
    assert one(found, "rm_zones_loss_ratio", source_zone="z1", destination_zone="z1", stat="worst") == worst
    assert (
        one(
            found,
            "rm_zones_bandwidth_bytes_per_second",
            source_zone="z1",
            destination_zone="z1",
            stat="worst",
        )
        < 3e6 / 8
    )
    assert one(found, "rm_mesh_cells", mesh="latency", status="critical") == 2
    assert one(found, "rm_mesh_paused", mesh="latency") == 1
    assert [one(found, "rm_source_up", source=s) for s in ("ma", "old")] == [1, 0]
    assert not any("k2" in dict(labels).values() for name, labels in found if name == "rm_pair_loss_ratio")


def test_open_metrics_for_who_asks(daemon: Daemon) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    _, kind, text = get(daemon.socket, accept, page=False)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in parse_open(text)}
    assert {"rm_build", "rm_job_pauses", "rm_hosts"} <= names


def test_a_part_that_fails_is_named_and_the_rest_stays(daemon: Daemon) -> None:
    def broken() -> None:
        raise StoreError("The database is gone.")

    daemon.service.network_service.pairs = broken  # type: ignore[assignment, method-assign]
    found = samples(get(daemon.socket, page=False)[2])
    assert one(found, "rm_scrape_part_failed", part="network") == 1
    assert one(found, "rm_hosts", state="UP") == 4


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_has_nothing_to_say(daemon: Daemon) -> None:
    _, _, text = get(daemon.socket)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_no_daemon_is_a_502(tmp_path: Path) -> None:
    status, _, text = get(str(tmp_path / "none.sock"))
    assert status == 502
    assert "does not answer" in text


def test_series_stay_few_however_many_directions_there_are() -> None:
    names = [f"h{n}" for n in range(120)]
    hosts = [(builders.host(name, f"z{n % 3}"), None, ()) for n, name in enumerate(names)]
    pair = {"loss_pct": 1.0, "delay_us": 5, "bandwidth_bps": None, "age_us": 1, "failures": 0}
    pairs = [{"source": a, "destination": b, **pair} for a in names for b in names if a != b]
    assert len(pairs) > PAIRS_MOST
    told = {f.name: f.samples for f in families(Told(hosts=hosts, pairs=pairs))}
    assert told["rm_pair_loss_ratio"] == []
    assert told["rm_network_pairs_left_out"][0].value == len(pairs)
    assert len(told["rm_zones_loss_ratio"]) == 2 * 9
    assert {s.value for s in told["rm_zones_loss_ratio"]} == {0.01}


def test_a_rotation_of_the_daemon_is_a_share_of_its_circle() -> None:
    link = {
        "name": "u1", "capacity_bps": 10, "jobs": [7], "score": None, "perimeter_us": None, "gap_us": None,
        "rotations": (Rotation("u1", 7, 18, 72),),
    }  # fmt: skip
    told = {f.name: f.samples for f in families(Told(links=[link]))}
    assert [s.value for s in told["rm_link_rotation_ratio"]] == [0.25]
    assert told["rm_link_score"] == []


# -- Grafana


def expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "definition") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def test_the_dashboard_asks_only_for_what_there_is(daemon: Daemon) -> None:
    job = dataclasses.replace(daemon.service.table[1])
    assert job.state == "RUNNING"
    text = get(daemon.socket, page=False)[2]
    told: dict[str, set[str]] = {}
    for family in parse(text):
        told.setdefault(family.name, set())
        for sample in family.samples:
            told.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads((GRAFANA / "dashboards/rm-cluster.json").read_text())
    asked = list(expressions(dashboard))
    assert len(asked) > 20
    for expression in asked:
        for name, selector in re.findall(r"\b(rm_\w+)(?:\{([^}]*)\})?", expression):
            assert name in told, f"{name} in {expression}"
            labels = set(re.findall(r"(\w+)\s*=~?", selector)) - {"instance"}
            assert labels <= told[name], f"{labels} of {name}"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_provisioning_and_dashboard_agree_on_their_uids() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/rm.yaml").read_text())["datasources"]
    text = (GRAFANA / "dashboards/rm-cluster.json").read_text()
    assert {s["uid"] for s in sources} == set(re.findall(r'"uid": "([^"]+)"', text)) - {"rm-cluster"}
    providers = yaml.safe_load((GRAFANA / "provisioning/dashboards/rm.yaml").read_text())["providers"]
    assert [p["type"] for p in providers] == ["file"]
    assert yaml.safe_load((GRAFANA / "prometheus.yaml").read_text())["scrape_configs"]
