"""A real Prometheus scrapes the page: it takes every expression of the shipped dashboard and rules."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rm.web.pages.listen import serve_page
from rm.web.pages.settings import PageSettings
from tests.fake_service import Daemon
from tests.fakes import PATIENCE_S
from tests.ports import Kept
from tests.unit.test_metrics import GRAFANA, daemon

__all__ = ["daemon"]
RULES = GRAFANA / "rules.yaml"
DASHBOARD = json.loads((GRAFANA / "dashboards/rm-cluster.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
EMPTY_HERE = {"Ten least certain directions"}  # the fake daemon's pairs say nothing of their confidence
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


@contextmanager
def page(path: str) -> Iterator[str]:
    """host:port of the page before the daemon, while it is served."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = serve_page(path, "127.0.0.1:0", PageSettings(anonymous=True))
    runner, url = asyncio.run_coroutine_threadsafe(serving, loop).result(PATIENCE_S)
    try:
        yield urllib.parse.urlsplit(url).netloc
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ask(url: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}", timeout=PATIENCE_S) as answer:
        return json.load(answer)["data"]


@pytest.fixture
def prometheus(daemon: Daemon, tmp_path: Path) -> Iterator[str]:
    """The API of a Prometheus that has scraped twice, with the shipped scrape job and rules."""
    with page(daemon.socket) as target:
        config = yaml.safe_load((GRAFANA / "prometheus.yaml").read_text())
        (job,) = config["scrape_configs"]
        job |= {"scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        config |= {"rule_files": [str(RULES)], "global": {"evaluation_interval": "1s"}}
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        kept = Kept()
        address = f"127.0.0.1:{kept.number}"
        argv = [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={address}",
        ]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=tmp_path)
        api = f"http://{address}/api/v1"
        try:
            until_scraped(api, process, tmp_path / "log")
            yield api
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            kept.close()


def until_scraped(api: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            found = ask(f"{api}/query", query="count_over_time(rm_job_iterations_total[1m]) >= 2")["result"]
        except OSError:  # it does not listen yet
            found = []
        if found:
            return
        time.sleep(0.1)
    raise AssertionError(f"Prometheus has scraped nothing: {log.read_text()}")


@needs_prometheus
def test_every_expression_of_the_dashboard_and_the_rules_is_answered(prometheus: str) -> None:
    asked = 0
    for panel in PANELS:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$instance", ".*")
            found = ask(f"{prometheus}/query", query=expression)["result"]
            assert found or panel["title"] in EMPTY_HERE, (panel["title"], expression)
            asked += 1
    (variable,) = DASHBOARD["templating"]["list"]
    label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert label is not None
    assert ask(f"{prometheus}/label/{label[2]}/values", **{"match[]": label[1]})
    (group,) = ask(f"{prometheus}/rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
    for rule in group["rules"]:
        ask(f"{prometheus}/query", query=rule["query"])
    assert asked > 20
    critical = ask(
        f"{prometheus}/query", query=next(r["query"] for r in group["rules"] if "Cells" in r["name"])
    )
    assert critical["result"] == []  # the mesh with critical cells is paused


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_takes_the_rules_and_the_scrape_job() -> None:
    for what, file in (("rules", RULES), ("config", GRAFANA / "prometheus.yaml")):
        done = subprocess.run(["promtool", "check", what, str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_can_lay_the_dashboard_out() -> None:
    """What Grafana's schema wants of a dashboard of this version: unique ids, panels inside its 24 columns
    that do not overlap, a data source and a letter of its own for each query."""
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert {*at} == {"x", "y", "w", "h"}
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24
        squares = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not squares & taken, panel["title"]
        taken |= squares
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters))
        if panel["type"] != "row":
            assert letters
            assert panel["datasource"] == {"type": "prometheus", "uid": "rm-prometheus"}
            assert {"defaults", "overrides"} <= panel["fieldConfig"].keys()
    assert DASHBOARD["uid"] == "rm-cluster"
    assert all(DASHBOARD[key] for key in ("title", "schemaVersion", "time", "refresh"))
