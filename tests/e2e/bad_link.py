"""A link that loses most of what a host sends, and a mesh that sees it; neither by clock nor by chance."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from rm.lab import fabric
from tests.cluster import Cluster

LOSSY_MESH: dict[str, Any] = {
    "name": "fast",
    "schedule": "every 24h",
    "tests": ["latency"],
    "rounds": 0,
    "retry_attempts": 2,
    "packets": 40,
    "spacing_s": 0.002,
    "loss_warn_pct": 20,
    "loss_critical_pct": 40,
}
# of ten packets as many in every test: at random the loss of one would now and then look like 40 % or less
LOSSY = 'add rule bridge bad from_host iifname "{host}" ip protocol udp numgen inc mod 10 < {lost} drop'


def switch(cluster: Cluster, *lines: str) -> None:
    done = subprocess.run(
        cluster.lab.fabric_command(["nft", "-f", "-"]),
        input="\n".join(lines).encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PATH": fabric.SEARCH},
    )
    assert done.returncode == 0, done.stderr


def break_link(cluster: Cluster, host: str, tenths: int = 7) -> None:
    """This part of the datagrams that the host sends is lost; its connections go on."""
    switch(
        cluster,
        "add table bridge bad",
        "add chain bridge bad from_host { type filter hook prerouting priority -250; }",
        LOSSY.format(host=host, lost=tenths),
    )


def heal_link(cluster: Cluster) -> None:
    switch(cluster, "delete table bridge bad")
