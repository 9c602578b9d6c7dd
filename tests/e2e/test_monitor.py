"""Meshes on real hosts: what the grid shows of a link that goes bad, and tests beside running jobs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from rm.demo.scenario import Training
from rm.demo.training import batch_script, program_text, traffic_file
from tests import builders
from tests.archive_servers import Esmond, serving
from tests.cluster import Cluster, until

pytestmark = pytest.mark.lab

MESHES = """
[[monitor.mesh]]
name = "quick"
schedule = "every 24h"
packets = 10
spacing_s = 0.002
retry_attempts = 2
loss_warn_pct = 1
loss_critical_pct = 50

[[monitor.mesh]]
name = "rates"
schedule = "0 3 * * *"
tests = ["throughput", "mtu"]
duration_s = 0.1
rounds = 0

[[monitor.mesh]]
name = "broken"
schedule = "whenever"
"""
JOBS = (Training("high", "high", 150.0, 400_000, 4), Training("low", "low", 150.0, 400_000, 4))


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    made = make_cluster({}, zones=1, hosts=3, gpus_per_host=2, link_mbps=100)
    made.config.write_text(made.config.read_text() + MESHES)
    made.stop()
    made.start()
    made.all_up()
    return made


def statuses(cluster: Cluster, mesh: str, check: str) -> dict[tuple[str, str], int]:
    cells = json.loads(cluster.rmx("monitor", "status", mesh, "--json"))["cells"]
    return {(c["source"], c["destination"]): c["status"] for c in cells if c["check"] == check}


def network(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.client.get("network")["pairs"]
    return found


def until_sound(cluster: Cluster) -> None:
    """A run on a busy machine may lose an answer that comes too late; the next does not. All is well, and
    nothing that was lost counts any more, as a try of two."""

    def sound() -> bool:
        cluster.rmx("monitor", "run", "quick")
        cells = json.loads(cluster.rmx("monitor", "status", "quick", "--json"))["cells"]
        lost = {c["value"] for c in cells if c["check"] == "loss"}
        return {c["status"] for c in cells} == {0} and lost == {0.0}

    until(sound, "no link loses anything")


def test_a_link_that_goes_bad_shows_after_two_tries_and_heals(cluster: Cluster) -> None:
    assert cluster.rmx("monitor", "run", "quick", "--once") == "quick: 3 pairs measured, 0 failed\n"
    until_sound(cluster)
    assert "1 z1h1 · o o" in cluster.rmx("network", "--mesh", "quick")
    address = cluster.hosts()["z1h2"]["address"]
    assert cluster.lab.exec("z1h1", ["ip", "route", "add", "blackhole", address]).returncode == 0
    cluster.rmx("monitor", "run", "quick")
    assert set(statuses(cluster, "quick", "loss").values()) == {0}  # once may be chance
    cluster.rmx("monitor", "run", "quick")
    bad = statuses(cluster, "quick", "loss")
    assert {pair for pair, status in bad.items() if status} == {("z1h1", "z1h2")}  # the way back is sound
    assert "1 z1h1 · C o" in cluster.rmx("network", "--mesh", "quick", "--check", "loss")
    assert "loss 100 % (20 of 20 packets in 2 tries, at least 79.4 %), critical from 50 %" in cluster.rmx(
        "monitor", "status", "quick"
    )
    cluster.lab.exec("z1h1", ["ip", "route", "del", "blackhole", address])
    until_sound(cluster)
    shown = cluster.rmx("network", "show", "z1h1", "z1h2")
    assert "z1h1 to z1h2: measured" in shown
    assert "confidence 100%" in shown
    assert "█" in shown
    changes = json.loads(cluster.rmx("monitor", "history", "quick", "--check", "loss", "--json"))["changes"]
    told = [(c["was"], c["status"]) for c in changes if (c["source"], c["destination"]) == ("z1h1", "z1h2")]
    assert told[0] == (2, 0)


def test_packets_that_are_dropped_one_way_are_lost_one_way(cluster: Cluster) -> None:
    """On the way to the one that asks and to the one that is asked: which of the two that is, rm chooses."""
    hosts = cluster.hosts()
    for source, destination in (("z1h1", "z1h2"), ("z1h2", "z1h1")):
        rules = [
            "add table inet oneway",
            "add chain inet oneway in { type filter hook input priority 0; }",
            f"add rule inet oneway in ip saddr {hosts[source]['address']} meta l4proto udp drop",
        ]
        for rule in rules:
            assert cluster.lab.exec(destination, ["nft", rule]).returncode == 0
        for _ in range(2):
            cluster.rmx("monitor", "run", "quick")
        bad = {pair for pair, status in statuses(cluster, "quick", "loss").items() if status}

        def one_way(way: tuple[str, str] = (source, destination)) -> bool:
            """By the newest run; on a busy machine one may get an answer too late."""
            lost = {(p["source"], p["destination"]): p["loss_pct"] for p in network(cluster)}
            assert lost[way] == 100.0
            if lost[way[::-1]] != 0.0:
                cluster.rmx("monitor", "run", "quick")
                return False
            return True

        until(one_way, "nothing is lost on the way back")
        cluster.lab.exec(destination, ["nft", "delete table inet oneway"])
        until_sound(cluster)
        assert bad == {(source, destination)}


def test_a_malformed_mesh_is_told_and_a_pause_outlasts_the_daemon(cluster: Cluster) -> None:
    answer = json.loads(cluster.rmx("monitor", "list", "--json"))
    assert [m["name"] for m in answer["meshes"]] == ["quick", "rates"]
    assert "'whenever' is not a schedule" in answer["malformed"][0]["message"]
    cluster.rmx("monitor", "pause", "rates")
    cluster.rmx("monitor", "run", "quick")
    before = statuses(cluster, "quick", "delay")
    assert len(before) == 6
    cluster.restart()
    cluster.all_up()
    state = {m["name"]: m["state"] for m in json.loads(cluster.rmx("monitor", "list", "--json"))["meshes"]}
    assert state == {"quick": "waiting", "rates": "paused"}
    assert statuses(cluster, "quick", "delay") == before
    cluster.rmx("monitor", "resume", "rates")
    assert "There is no mesh 'nope'" in cluster.refused(4, "monitor", "run", "nope")


def test_throughput_is_found_in_the_gaps_of_running_jobs(cluster: Cluster) -> None:
    jobs = []
    for training in JOBS:
        alone_ms = training.compute_ms + 36
        traffic = cluster.directory / f"{training.name}.json"
        traffic.write_text(traffic_file(builders.profile(alone_ms, (training.compute_ms, 36, 95))))
        script = batch_script(training, program_text(), 10_000, 0.0, "cubic")
        jobs.append(
            cluster.submit(f"--traffic={traffic}", "--nodelist=z1h1,z1h2", "--chdir=/tmp", input=script)
        )
    try:
        for job in jobs:
            cluster.wait(job, "RUNNING")

        def found() -> dict[str, Any] | None:
            cluster.run("monitor", "run", "rates")
            pairs = {(p["source"], p["destination"]): p for p in network(cluster)}
            pair = pairs["z1h1", "z1h2"]
            return pair if (pair["bandwidth_bps"] or 0) > 10e6 else None

        pair = until(found, "a gap was found", wait_s=200)  # the jobs of a busy machine leave few
        assert pair["bandwidth_bps"] < 130e6
        assert all(cluster.job(job)["state"] == "RUNNING" for job in jobs)
        history = cluster.client.get("network", "history", source="z1h1", destination="z1h2", since_s=600)
        assert any(s["values"].get("mtu_bytes") == 1500 for s in history["samples"])
    finally:
        cluster.tidy()


ARCHIVE = """
[[monitor.source]]
name = "old"
kind = "esmond"
url = "{url}/esmond/perfsonar/archive"
every = "1h"
retry_attempts = 1
loss_critical_pct = 5
"""


def test_an_archive_is_a_grid_until_rm_toml_does_not_name_it_any_more(cluster: Cluster) -> None:
    """As an operator would who feeds rm from what measures already; and a host that comes again is new."""
    hosts, before = cluster.hosts(), cluster.config.read_text()
    a, b = hosts["z1h1"]["address"], hosts["z1h3"]["address"]
    esmond = Esmond()
    measured_s = time.time_ns() // 10**9
    now_s = until(lambda: (now := time.time_ns() // 10**9) > measured_s and now, "the next second begins")
    esmond.series[a, b, "packet-loss-rate"] = [
        {"ts": now_s - 60, "val": 0.0},
        {"ts": now_s - 30, "val": 0.25},
    ]
    esmond.series[b, a, "throughput"] = [{"ts": now_s, "val": 9.4e9}]  # newer than what rm found itself
    with serving(*esmond.routes()) as url:
        cluster.config.write_text(before + ARCHIVE.format(url=url))
        cluster.restart()
        cluster.all_up()
        cluster.run("monitor", "run", "esmond:old")  # unless the daemon is just at it
        bad = {("z1h1", "z1h3"): 2}
        until(lambda: statuses(cluster, "esmond:old", "loss") == bad, "the archive is read")
        assert "1 z1h1 · C" in cluster.rmx("network", "--mesh", "esmond:old")
        assert "loss 25 %, critical from 5 %" in cluster.rmx("monitor", "history", "esmond:old")
        pairs = {(p["source"], p["destination"]): p for p in network(cluster)}
        assert pairs["z1h3", "z1h1"]["bandwidth_bps"] == 9_400_000_000
        text = subprocess.run(
            ["curl", "-sS", "--unix-socket", cluster.socket, "http://rm/metrics"],
            capture_output=True,
            text=True,
        ).stdout
        assert 'rm_mesh_cells{mesh="esmond:old",status="critical"} 1.0' in text
        cluster.rmx("host", "remove", "z1h3")
        assert statuses(cluster, "esmond:old", "loss") == {}
        assert json.loads(cluster.rmx("monitor", "history", "esmond:old", "--json"))["changes"] == []
        cluster.rmx("host", "import", str(cluster.lab.inventory))
        cluster.all_up()
        assert "never measured" in cluster.rmx("network", "show", "z1h1", "z1h3")
    cluster.config.write_text(before)
    cluster.restart()
    cluster.all_up()
    assert "esmond" not in cluster.rmx("monitor", "list")
    assert "'esmond:old'" in cluster.refused(4, "monitor", "status", "esmond:old")
