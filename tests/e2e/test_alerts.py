"""A link goes bad on real hosts: the grid shows it, placement avoids the host, the alert fires once; then
it heals, and all of that reverts. Over a restart of the daemon in between."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm.lab import fabric
from tests.cluster import Cluster, until

pytestmark = pytest.mark.lab

TABLES = """
[[monitor.mesh]]
name = "fast"
schedule = "every 3s"
tests = ["latency"]
rounds = 0
jitter_s = 0
retry_attempts = 2
packets = 10
loss_warn_pct = 5
loss_critical_pct = 20

[[alerts.channel]]
name = "file"
command = ["/bin/sh", "-c", "cat >> {file}; echo >> {file}"]

[[alerts.rule]]
name = "network"
on = ["loss"]
after_s = 4
clear_s = 2
"""
LOSSY = 'add rule bridge bad from_host iifname "{host}" ip protocol udp numgen random mod 100 < 70 drop'


def switch(cluster: Cluster, *lines: str) -> None:
    done = subprocess.run(
        cluster.lab.fabric_command(["nft", "-f", "-"]),
        input="\n".join(lines).encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PATH": fabric.SEARCH},
    )
    assert done.returncode == 0, done.stderr


def break_link(cluster: Cluster, host: str) -> None:
    """Most of the datagrams that the host sends are lost; its connections go on."""
    switch(
        cluster,
        "add table bridge bad",
        "add chain bridge bad from_host { type filter hook prerouting priority -250; }",
        LOSSY.format(host=host),
    )


def heal_link(cluster: Cluster) -> None:
    switch(cluster, "delete table bridge bad")


def bad_cells(cluster: Cluster) -> set[tuple[str, str]]:
    cells = cluster.client.get("monitor", "fast")["cells"]
    return {(c["source"], c["destination"]) for c in cells if c["check"] == "loss" and c["status"] == 2}


def planned(cluster: Cluster) -> list[str]:
    """The hosts that a job of two whole hosts would get now."""
    spec = {"name": "test", "script": "#!/bin/sh\n", "ntasks": 2, "gpus_per_task": 2}
    answer = cluster.client.post("plan", body={"spec": spec})
    placement = answer["placement"]
    return sorted({task["host"] for task in placement["tasks"]}) if placement else []


def lossy(cluster: Cluster) -> list[dict[str, Any]]:
    return [row for row in cluster.client.get("network")["pairs"] if row["loss_pct"] > 5]


def told(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []


def alerts(cluster: Cluster, state: str) -> list[str]:
    answer = json.loads(cluster.rmx("alerts", "--json"))
    return [a["subject"] for a in answer["alerts"] if a["state"] == state]


def test_a_link_goes_bad_and_heals(make_cluster: Callable[..., Cluster]) -> None:
    settings = {"monitor": {"enabled": True}, "alerts": {"every_s": 0.5}}
    cluster = make_cluster(settings, zones=1, hosts=4, gpus_per_host=2)
    file = cluster.directory / "told"
    with cluster.config.open("a") as config:
        config.write(TABLES.format(file=file))
    cluster.stop()
    cluster.start()
    cluster.all_up()
    names = sorted(cluster.hosts())
    until(
        lambda: sum(c["status"] == 0 for c in cluster.client.get("monitor", "fast")["cells"]) >= 24,
        "loss and delay of the twelve directions are good",
    )
    first = until(lambda: planned(cluster), "a job would start")
    bad = first[0]
    break_link(cluster, bad)
    outgoing = {(bad, other) for other in names if other != bad}
    until(lambda: bad_cells(cluster) == outgoing, "the grid shows what the host loses")
    until(lambda: planned(cluster) and bad not in planned(cluster), "placement avoids the host")
    until(lambda: len(told(file)) == 1, "the alert fires")
    assert alerts(cluster, "firing") == [bad]
    assert lossy(cluster)
    cluster.restart()
    cluster.all_up()
    until(lambda: alerts(cluster, "firing") == [bad], "the alert goes on after a restart")
    heal_link(cluster)
    until(lambda: not bad_cells(cluster), "the grid is good again")
    until(lambda: not lossy(cluster), "the map that placement reads is good again")
    until(lambda: len(told(file)) == 2, "its recovery is told")
    assert [(n["event"], n["condition"], n["subject"]) for n in told(file)] == [
        ("firing", "loss", bad),
        ("resolved", "loss", bad),
    ]
    assert told(file)[0]["id"] == told(file)[1]["id"]
    assert alerts(cluster, "firing") == []
