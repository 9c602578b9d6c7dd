"""Jobs keep to spines on a leaf-spine lab: a real daemon, agents, and leaves that choose by code points."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.lab.spec import dscp_of
from tests.cluster import Cluster, until

from .conftest import MakeCluster

pytestmark = pytest.mark.lab

# each of two ranks sends to the other until it is ended
PROGRAM = """#!/usr/bin/env python3
import os, socket, sys, threading, time
rank, port = int(os.environ["RANK"]), int(sys.argv[1])
server = socket.create_server(("", port))
def drain():
    link, _ = server.accept()
    while link.recv(1 << 16):
        pass
threading.Thread(target=drain, daemon=True).start()
while True:
    try:
        link = socket.create_connection((sys.argv[3 - rank], port))
        break
    except OSError:
        time.sleep(0.05)
while True:
    link.send(bytes(1 << 16))
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    fabric = {"spines": 2, "uplink_mbps": 50, "dscp": [dscp_of(0), dscp_of(1)]}
    return make_cluster({"fabric": fabric}, zones=1, hosts=4, leaves=2, spines=2, uplink_mbps=50)


def send_between(cluster: Cluster, tmp_path: Path, port: int, *hosts: str) -> int:
    script = tmp_path / f"{port}.py"
    script.write_text(PROGRAM)
    peers = [cluster.lab.host(name).address for name in hosts]
    options = ["--nodes=2", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}", "--launch=tasks"]
    return cluster.submit(*options, script, port, *peers)


class Carried:
    """What the first leaf has sent up to each spine from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self._lab = cluster.lab
        self._before = {spine: self._lab.uplink_bytes(1, spine)[0] for spine in (1, 2)}

    def since(self, spine: int) -> int:
        return self._lab.uplink_bytes(1, spine)[0] - self._before[spine]


def alone(cluster: Cluster, spine: int) -> bool:
    """Does the other spine carry nothing while this one carries 2 MB? A suspended job sends until its hosts
    have heard of that."""
    carried = Carried(cluster)
    until(lambda: carried.since(spine) > 2_000_000, f"spine {spine} carries a job")
    return carried.since(3 - spine) < 100_000


def test_two_jobs_between_two_leaves_take_a_spine_each(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [
        send_between(cluster, tmp_path, 7301, "z1h1", "z1h3"),
        send_between(cluster, tmp_path, 7302, "z1h2", "z1h4"),
    ]
    for job in jobs:
        cluster.wait(job, "RUNNING")
    paths = [cluster.client.get("jobs", job, "why")["alignment"]["paths"] for job in jobs]
    assert [(one["host"], one["spine"]) for one in paths[0]] == [("z1h1", 0), ("z1h3", 0)]
    assert [(one["host"], one["spine"]) for one in paths[1]] == [("z1h2", 1), ("z1h4", 1)]
    assert f"job {jobs[1]}: over spine 1 from z1h2, z1h4" in cluster.rmx("why", jobs[1])

    def marked(host: str) -> bool:
        return "dscp" in cluster.lab.exec(host, ["nft", "list", "table", "inet", "rm_path"]).stdout.decode()

    until(lambda: all(map(marked, ("z1h1", "z1h2", "z1h3", "z1h4"))), "hosts set the code points")
    for still, spine in (
        (jobs[1], 1),
        (jobs[0], 2),
    ):  # one job stands still, and the other's packets are seen
        cluster.rmx("suspend", still)
        cluster.wait(still, "SUSPENDED")
        until(lambda spine=spine: alone(cluster, spine), f"spine {spine} carries a job, the other nothing")
        cluster.rmx("resume", still)
        cluster.wait(still, "RUNNING")
    cluster.client.delete("jobs", jobs[0])
    until(lambda: not marked("z1h1"), "nothing is left on the host")
    assert marked("z1h2")
