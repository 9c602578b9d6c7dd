"""Playbooks that know the queue: drain, wait for the jobs, act, burn in, return; a failure stays drained."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RMX, Cluster, until

pytestmark = pytest.mark.lab
SMALL = "rm_burn_in_seconds=1 rm_burn_in_memory_percent=1 rm_burn_in_disk_mb=8 rm_reason=firmware"


@pytest.fixture(scope="module")
def cluster(make_cluster: Any) -> Cluster:
    made: Cluster = make_cluster(zones=1, hosts=2)
    return made


def hosts(cluster: Cluster) -> dict[str, Any]:
    return {host["name"]: host for host in cluster.client.get("hosts")["hosts"]}


def argv(cluster: Cluster, *more: str) -> list[str]:
    inventory = ["--inventory", str(cluster.lab.inventory), "--known-hosts", str(cluster.lab.known_hosts)]
    return ["--config", str(cluster.config), "playbook", "run", "drain", *inventory, "-e", SMALL, *more]


def test_a_host_is_drained_after_its_job_acted_on_and_returned(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first, second = sorted(hosts(cluster))
    tmp_path.joinpath("act.yml").write_text("- copy: {content: new, dest: /opt/firmware}\n")
    job = cluster.submit("-w", first, "--wrap", "while [ ! -e /tmp/end ]; do sleep 0.05; done")
    until(lambda: cluster.client.get("jobs", job)["job"]["state"] == "RUNNING", "the job runs")
    running = subprocess.Popen(
        [RMX, *argv(cluster, "-e", f"rm_act={tmp_path}/act.yml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    request.addfinalizer(running.kill)
    until(lambda: "firmware" in hosts(cluster)[first]["drained_by"], "the first host drains")
    assert hosts(cluster)[second]["drained_by"] == ""
    assert cluster.lab.exec(first, ["test", "-e", "/opt/firmware"]).returncode != 0
    assert running.poll() is None
    cluster.lab.exec(first, ["touch", "/tmp/end"])
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert [host["drained_by"] for host in hosts(cluster).values()] == ["", ""]
    for name in (first, second):
        assert cluster.lab.exec(name, ["cat", "/opt/firmware"]).stdout == b"new"
    assert cluster.client.get("jobs", job)["job"]["state"] == "COMPLETED"


def test_what_fails_stays_drained_and_stops_the_rolling(cluster: Cluster, tmp_path: Path) -> None:
    first, second = sorted(hosts(cluster))
    tmp_path.joinpath("act.yml").write_text("- fail: {msg: the update broke}\n")
    foretold = cluster.run(*argv(cluster, "--check"))
    assert foretold.returncode == 0, foretold.stderr
    assert [host["drained_by"] for host in hosts(cluster).values()] == ["", ""]
    done = cluster.run(*argv(cluster, "-e", f"rm_act={tmp_path}/act.yml"))
    assert done.returncode == 2
    assert "the update broke" in done.stderr
    assert "not finished" in done.stdout
    found = hosts(cluster)
    assert "firmware" in found[first]["drained_by"]
    assert found[second]["drained_by"] == ""
    cluster.rmx("host", "resume", first)
