"""Playbooks that know the queue: drain, wait for the jobs, act, burn in, return; a failure stays drained.
And a host that fails its checks: drained by rm, returned by the burn-in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RMX, WAIT_S, Cluster, until
from tests.e2e.bad_link import LOSSY_MESH, break_link, heal_link

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
    said, _ = running.communicate(timeout=4 * WAIT_S)
    assert running.returncode == 0, said
    assert [host["drained_by"] for host in hosts(cluster).values()] == ["", ""]
    for name in (first, second):
        assert cluster.lab.exec(name, ["cat", "/opt/firmware"]).stdout == b"new"
    assert cluster.client.get("jobs", job)["job"]["state"] == "COMPLETED"


def test_a_host_that_cannot_restart_is_refused_before_it_is_drained(cluster: Cluster) -> None:
    name = min(hosts(cluster))
    done = cluster.run(*argv(cluster, "-e", "rm_reboot=true", "--limit", name))
    assert done.returncode == 2
    assert f"{name} is a container, such as a host of `rmx lab`" in done.stderr
    assert hosts(cluster)[name]["drained_by"] == ""


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


BURN_IN = (
    "rm_burn_in_seconds=1 rm_burn_in_memory_percent=1 rm_burn_in_disk_mb=1 rm_burn_in_network_seconds=0.1 "
    "rm_burn_in_probes=40 rm_burn_in_max_loss_pct=30 rm_burn_in_min_share_pct=1 rm_return=true"
)


def test_who_fails_its_checks_is_drained_and_returned_by_the_burn_in(make_cluster: Any) -> None:
    settings = {
        "monitor": {"mesh": [LOSSY_MESH]},
        "alerts": {"every_s": 0.1, "drain": True, "drain_on": ["loss"], "drain_after": 2, "return_after": 0},
    }
    cluster: Cluster = make_cluster(settings, zones=1, hosts=3)
    good, bad, byhand = sorted(hosts(cluster))
    inventory = ["--inventory", str(cluster.lab.inventory), "--known-hosts", str(cluster.lab.known_hosts)]

    def drained(name: str) -> str:
        return str(hosts(cluster)[name]["drained_by"])

    def burn_in(*names: str) -> subprocess.CompletedProcess[str]:
        only = ["--limit", ",".join(names)]
        return cluster.run("playbook", "run", "burn_in", *inventory, *only, "-e", BURN_IN)

    cluster.rmx("host", "drain", byhand, "--reason", "swap the NIC")
    job = cluster.submit("-w", bad, "--wrap", "while [ ! -e /tmp/end ]; do sleep 0.05; done")
    cluster.wait(job, "RUNNING")
    cluster.rmx("monitor", "run", LOSSY_MESH["name"])
    break_link(cluster, bad)
    until(lambda: cluster.run("monitor", "run", LOSSY_MESH["name"]) and drained(bad), "it is drained", 240)
    assert drained(bad).startswith(f"failed 2 checks in a row: 2 of 2 pairs of {bad} are bad; {bad} to ")
    assert drained(good) == ""
    cluster.lab.exec(bad, ["touch", "/tmp/end"])
    assert cluster.wait(job)["state"] == "COMPLETED"  # what runs goes on

    failed = burn_in(good, bad)
    assert failed.returncode == 2, failed.stderr
    assert f"The path between {good} and {bad} is bad" in failed.stderr
    assert "by its checks" in drained(bad)

    heal_link(cluster)
    passed = burn_in(bad, byhand)
    assert passed.returncode == 0, passed.stderr
    assert drained(bad) == ""  # although no test of the mesh has seen yet that it is well again
    assert "swap the NIC" in drained(byhand)
    assert cluster.wait(cluster.submit("-w", bad, "--wrap", "true"))["state"] == "COMPLETED"
    cluster.rmx("monitor", "run", LOSSY_MESH["name"])
    assert drained(bad) == ""


def test_maintenance_keeps_jobs_off_its_hosts_and_runs_its_playbook(cluster: Cluster, tmp_path: Path) -> None:
    """A reservation for nobody: jobs that would reach into it wait, its host is drained, and the playbook
    changes it, once. Then one for a user, in which his job runs."""
    first, second = sorted(hosts(cluster))
    playbook = tmp_path / "mend.yml"
    playbook.write_text("- hosts: all\n  tasks:\n    - ansible.builtin.command: touch /opt/mended\n")
    script = "echo reserved: $SLURM_JOB_RESERVATION"
    job = cluster.submit("-w", first, "--time=1:00:00", "--hold", "--wrap", script)
    cluster.rmx("reservation", "create", "mend", "--hosts", first, "--duration", "1:00:00",
                "--maintenance", playbook)  # fmt: skip
    cluster.rmx("release", job)
    until(
        lambda: hosts(cluster)[first]["drained_by"].startswith("maintenance: reservation mend"), "it drains"
    )

    def result() -> str:
        return str(json.loads(cluster.rmx("reservation", "show", "--json"))["reservations"][0]["result"])

    until(lambda: result() not in ("", "it runs"), "the playbook has run", 60)
    assert result() == "done"
    assert cluster.lab.exec(first, ["test", "-e", "/opt/mended"]).returncode == 0
    assert cluster.lab.exec(second, ["test", "-e", "/opt/mended"]).returncode != 0
    assert cluster.job(job)["state"] == "PENDING"
    cluster.restart()
    assert result() == "done", "it is durable, and has not begun again"
    cluster.rmx("hold", job)
    cluster.rmx("reservation", "delete", "mend")
    cluster.rmx("reservation", "create", "ours", "--hosts", first, "--duration", "1:00:00", "--users", "root")
    cluster.rmx("release", job)
    until(
        lambda: "reservation ours" in cluster.rmx("why", job), "a daemon begun anew hears of its hosts first"
    )
    cluster.rmx("set", job, "reservation=ours", "time=30")
    cluster.wait(job, "COMPLETED")
    assert cluster.log(job) == "reserved: ours\n"
    cluster.rmx("reservation", "delete", "ours")
