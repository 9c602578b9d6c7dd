"""On a fabric of leaves and spines an alert names the hop behind which packets are lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import Cluster, until

pytestmark = pytest.mark.lab

MESH = {
    "name": "quick",
    "schedule": "every 24h",
    "between": "all",
    "rounds": 0,
    "packets": 20,
    "retry_attempts": 2,
    "loss_warn_pct": 10,
    "loss_critical_pct": 50,
}


def nft(cluster: Cluster, text: str) -> None:
    command = cluster.lab.fabric_command(["nft", "-f", "-"])
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def lossy(cluster: Cluster) -> list[dict[str, Any]]:
    cluster.run("monitor", "run", "quick")
    cells = json.loads(cluster.rmx("monitor", "status", "quick", "--json"))["cells"]
    return [c for c in cells if c["check"] == "loss" and c["status"] == 2 and "trace:" in c["message"]]


def test_the_hop_is_named(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster({"monitor": {"mesh": [MESH]}}, zones=1, leaves=2, spines=2, hosts=2)
    cluster.all_up()
    *_, other = sorted(cluster.hosts().values(), key=lambda h: h["name"])
    leaf = other["address"].rsplit(".", 1)[0]
    far = [h["name"] for h in cluster.hosts().values() if not h["address"].startswith(f"{leaf}.")]
    assert far
    cluster.rmx("monitor", "run", "quick")
    target = other["address"]
    try:
        # what a spine sends down to the other host's leaf
        nft(
            cluster,
            "add table inet bad\n"
            "add chain inet bad down { type filter hook forward priority 0; }\n"
            f'add rule inet bad down iifname "s*" ip daddr {target} drop\n'
            f'add rule inet bad down iifname "l*s*" ip daddr {target} drop\n',
        )
        found = until(lambda: lossy(cluster), "the loss is traced", wait_s=120)
    finally:
        nft(cluster, "delete table inet bad")
    print(found)
    for cell in found:
        assert (cell["source"], cell["destination"]) in ((name, other["name"]) for name in far)
        assert "lost behind hop" in cell["message"]
        way = cell["message"].split("trace: ")[1].split(":")[0].split(", then")[0].split(" > ")
        named = [hop for hop in way if hop != "?"]
        assert len(named) == len(set(named)), "each router of the way has an address of its own"
