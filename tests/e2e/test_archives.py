"""Tests of every kind on real hosts, and their results at an archive."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from tests.archive_servers import serving
from tests.cluster import Cluster, until
from tests.pscheduler_schemas import must_be_a_run

pytestmark = pytest.mark.lab

CONFIG = """
[[monitor.mesh]]
name = "pairs"
schedule = "every 24h"
tests = ["latency", "mtu", "trace", "clock"]
packets = 20
spacing_s = 0.002
retry_attempts = 1

[[monitor.mesh]]
name = "names"
schedule = "every 24h"
tests = ["dns"]
query = "www.example.org"
nameserver = "127.0.0.1"
timeout_s = 0.2
retry_attempts = 1

[[monitor.mesh]]
name = "page"
schedule = "every 24h"
tests = ["http"]
url = "http://127.0.0.1:9/"
timeout_s = 0.2
retry_attempts = 1

[[monitor.archive]]
name = "central"
url = "URL"
runs = "all"
"""


def test_results_of_every_kind_reach_an_archive_in_pschedulers_documents(
    make_cluster: Callable[..., Cluster],
) -> None:
    got: list[dict[str, Any]] = []
    taking = threading.Lock()

    async def take(request: web.Request) -> web.Response:
        with taking:
            got.append(await request.json())
        return web.Response(status=201)

    with serving(web.post("/logstash", take)) as url:
        made = make_cluster({}, zones=1, hosts=2)
        made.config.write_text(made.config.read_text() + CONFIG.replace("URL", f"{url}/logstash"))
        made.stop()
        made.start()
        made.all_up()
        until(  # a test may fail on a busy machine: a host has not answered in time
            lambda: made.run("monitor", "run", "pairs").stdout == "pairs: 1 pairs measured, 0 failed\n",
            "every test of the pair succeeds",
        )
        for mesh in ("names", "page"):
            made.run("monitor", "run", mesh)

        def there() -> bool:
            with taking:
                return {d["test"]["type"] for d in got} == {"latency", "mtu", "trace", "clock", "dns", "http"}

        until(there, "the archive has results of every kind")
        cells = json.loads(made.rmx("monitor", "status", "pairs", "--json"))["cells"]
        archives = json.loads(made.rmx("monitor", "archives", "--json"))["archives"]
        page = made.rmx("monitor", "status", "page")
    with taking:
        for document in got:
            must_be_a_run(document)
        latency = next(d for d in got if d["test"]["type"] == "latency")
    assert sum(latency["result"]["histogram-latency"].values()) == latency["result"]["packets-received"]
    assert {c["check"] for c in cells} == {"loss", "delay", "mtu", "trace", "clock"}
    assert any("trace: z1h1 >" in c["message"] for c in cells)
    assert (archives[0]["name"], archives[0]["dropped"], archives[0]["message"]) == ("central", 0, "")
    assert "z1h1" in page
    assert "critical" in page
    assert "http://127.0.0.1:9/: " in page


KILLED = """
[[monitor.mesh]]
name = "pairs"
schedule = "every 24h"
packets = 10
spacing_s = 0.002

[[monitor.archive]]
name = "central"
url = "URL"
retry_policy = [{ attempts = 1000, wait = "1s" }]
"""


def test_a_daemon_that_is_killed_while_an_archive_is_away_loses_no_result(
    make_cluster: Callable[..., Cluster],
) -> None:
    got: list[str] = []
    refused: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        refused.append((await request.json())["id"])
        return web.Response(status=503)

    async def take(request: web.Request) -> web.Response:
        got.append((await request.json())["id"])
        return web.Response(status=201)

    # at an address of its own: a request of the killed daemon may reach the server after its end
    with serving(web.post("/away", refuse), web.post("/logstash", take)) as url:
        made = make_cluster({}, zones=1, hosts=2)
        made.config.write_text(made.config.read_text() + KILLED.replace("URL", f"{url}/away"))
        made.stop()
        made.start()
        made.all_up()
        for _ in range(3):
            made.rmx("monitor", "run", "pairs")
        until(lambda: refused, "the archive was tried")
        made.kill()
        made.config.write_text(made.config.read_text().replace(f"{url}/away", f"{url}/logstash"))
        made.start()
        made.all_up()
        until(lambda: len(set(got)) == 6, "the results of three runs, both ways, are there", 120)
        assert set(refused) <= set(got)

        def row() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(made.rmx("monitor", "archives", "--json"))["archives"][0]
            return found

        until(lambda: row()["waiting"] == 0, "the daemon has heard that the last one is kept")
        dropped = row()["dropped"]
    assert dropped == 0
    assert len(got) == 6, "none came twice"
