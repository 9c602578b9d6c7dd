"""A mesh that measures without a pause, on real hosts: a dead moment is never between two tests."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from tests.archive_servers import serving
from tests.cluster import Cluster, until
from tests.pscheduler_schemas import must_be_a_run

pytestmark = pytest.mark.lab

WINDOW_S, PACKETS = 5, 50
DROPPED = 30  # packets: of more than half a window
LATE = 5  # packets that a busy machine may bring too late
CONFIG = f"""
[[monitor.mesh]]
name = "bg"
tests = ["latencybg"]
packets = {PACKETS}
loss_warn_pct = 1
loss_critical_pct = 20
retry_attempts = 1

[[monitor.archive]]
name = "central"
url = "URL"
"""
PATIENCE_S = 120.0


class Archive:
    """Keeps every run. What a daemon sent just before it was killed comes twice, as the same run."""

    def __init__(self) -> None:
        self._taking = threading.Lock()
        self._got: dict[str, dict[str, Any]] = {}  # by the run's id

    async def take(self, request: web.Request) -> web.Response:
        document = await request.json()
        with self._taking:
            self._got.setdefault(document["id"], document)
        return web.Response(status=201)

    def windows(self, source: str, destination: str) -> list[tuple[float, dict[str, Any]]]:
        """(when it began, the document) of each window of the direction, in order of time."""
        with self._taking:
            some = [d for d in self._got.values() if d["participants"] == [source, destination]]
        return sorted(((stamp(d["run"]["start-time"]), d) for d in some), key=lambda one: one[0])


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def nft(cluster: Cluster, host: str, words: str) -> str:
    done = cluster.lab.exec(host, ["nft", *words.split()])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def dropped(cluster: Cluster, host: str) -> int:
    """How many packets the rule has dropped so far."""
    listed = json.loads(nft(cluster, host, "-j list counter inet bg lost"))["nftables"]
    return next(int(one["counter"]["packets"]) for one in listed if "counter" in one)


def processes(cluster: Cluster) -> set[int]:
    """Of continuous tests, on the cluster's hosts."""
    hosts = [host.name for host in cluster.lab.hosts]
    link = ["readlink", "/proc/self/ns/net"]
    networks = {cluster.lab.exec(name, link).stdout.decode().strip() for name in hosts}
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                ours = b"rm_latencybg_process.py" in file.read()
            if ours and os.readlink(f"/proc/{name}/ns/net") in networks:
                found.add(int(name))
        except OSError:
            continue
    return found


def test_streams_go_on_while_links_channels_and_daemons_come_and_go(
    make_cluster: Callable[..., Cluster],
) -> None:
    archive = Archive()
    with serving(web.post("/logstash", archive.take)) as url:
        made = make_cluster({"monitor": {"enabled": True}}, zones=1, hosts=2)
        made.config.write_text(made.config.read_text() + CONFIG.replace("URL", f"{url}/logstash"))
        made.stop()
        made.start()
        made.all_up()
        ends = tuple(made.hosts()[name]["address"] for name in ("z1h1", "z1h2"))

        def many(count: int) -> list[tuple[float, dict[str, Any]]]:
            found = archive.windows(*ends)
            return found if len(found) >= count else []

        def until_windows(more: int) -> list[tuple[float, dict[str, Any]]]:
            count = len(archive.windows(*ends)) + more
            return until(lambda: many(count), f"{more} more windows", PATIENCE_S)  # type: ignore[no-any-return]

        until_windows(2)
        assert len(processes(made)) == 2
        # one way, thirty packets long at the least; the kernel counts them
        began_s = time.time()
        nft(made, "z1h2", "add table inet bg")
        nft(made, "z1h2", "add counter inet bg lost")
        nft(made, "z1h2", "add chain inet bg in { type filter hook input priority 0; }")
        nft(
            made, "z1h2", f"add rule inet bg in ip saddr {ends[0]} udp dport 8750-8759 counter name lost drop"
        )
        until(lambda: dropped(made, "z1h2") >= DROPPED, "packets are dropped")
        nft(made, "z1h2", "flush chain inet bg in")
        count, over_s = dropped(made, "z1h2"), time.time()
        nft(made, "z1h2", "delete table inet bg")
        found = until_windows(4)
        lost = [(at_s, d["result"]["packets-lost"]) for at_s, d in found if d["result"]["packets-lost"]]
        meanwhile = [count for at_s, count in lost if began_s - WINDOW_S < at_s < over_s]
        assert count <= sum(meanwhile) <= count + LATE, lost
        assert sum(count for _, count in lost) - sum(meanwhile) <= LATE, lost
        assert not [d for _, d in archive.windows(*ends[::-1]) if d["result"]["packets-lost"] > LATE]
        for _, document in found:
            must_be_a_run(json.loads(json.dumps(document)))
        assert found[0][1]["test"]["type"] == "latencybg"
        changes = json.loads(made.rmx("monitor", "history", "bg", "--check", "loss", "--json"))["changes"]
        assert ("z1h1", "z1h2") in {(c["source"], c["destination"]) for c in changes}

        # without a daemon: the windows of that time come afterwards, none is missing, and the streams go on
        made.kill()
        time.sleep(3 * WINDOW_S)
        assert len(processes(made)) == 2
        started_s = time.time()
        made.start()
        made.all_up()
        until(lambda: many(1)[-1][0] > started_s + WINDOW_S, "a window that began afterwards", PATIENCE_S)
        found = many(1)
        gaps = [after[0] - first[0] for first, after in pairwise(found)]
        assert all(abs(gap - WINDOW_S) < 0.1 for gap in gaps), gaps
        assert sum(d["result"]["packets-sent"] for _, d in found[1:]) >= 0.8 * PACKETS * len(found[1:])

        # a channel that is lost
        shown = json.loads(made.rmx("monitor", "list", "--json"))["meshes"]
        (mesh,) = [one for one in shown if one["name"] == "bg"]
        assert (mesh["schedule"], mesh["state"], mesh["every_us"]) == ("continuous", "running", 5_000_000)
        assert "without a pause" in made.refused(2, "monitor", "run", "bg")

        made.rmx("monitor", "pause", "bg")
        until(lambda: not processes(made), "the streams have ended", PATIENCE_S)
        made.rmx("monitor", "resume", "bg")
        until(lambda: len(processes(made)) == 2, "the streams are there again", PATIENCE_S)
        for pid in processes(made):  # a defect of theirs, or somebody who kills them
            os.kill(pid, signal.SIGKILL)
        until_windows(1)
        made.rmx("monitor", "pause", "bg")
        until(lambda: not processes(made), "the streams have ended", PATIENCE_S)
