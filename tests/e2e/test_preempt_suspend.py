"""A job that stands still for another on a real host."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster, until
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab
TICKS = "i=0; while :; do i=$((i+1)); echo $i >> /tmp/ticks; sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({"jobs": {"grace_s": 2.0}}, zones=1, hosts=1)


def test_it_does_nothing_meanwhile_and_goes_on_after_it(cluster: Cluster) -> None:
    (host,) = cluster.hosts().values()
    name, cpus = host["name"], host["cpus"]
    cluster.rmx("qos", "add", "batch", "--preempt-mode", "suspend")
    cluster.rmx("qos", "add", "urgent", "--preempts", "batch")

    def ticks() -> int:
        return len(cluster.read(name, "/tmp/ticks").split())

    low = cluster.post_job(TICKS, qos="batch", cpus_per_task=cpus, launch="tasks")
    until(lambda: ticks() > 3, "it runs")
    cluster.lab.exec(name, ["mkfifo", "-m", "666", "/tmp/go"])
    urgent = cluster.post_job("read line < /tmp/go", qos="urgent", cpus_per_task=cpus, launch="tasks")
    cluster.wait(urgent, "RUNNING")
    job = cluster.job(low)
    assert (job["state"], job["yields_to"]) == ("SUSPENDED", [urgent])
    group = f"job_{low}_{job['attempt']}"
    frozen = f'find /sys/fs/cgroup -path "*{group}*" -name cgroup.freeze | xargs cat | head -1'
    freezer = f'find /sys/fs/cgroup -path "*{group}*" -name freezer.state | xargs cat | head -1'

    def state() -> str:
        return cluster.lab.exec(name, ["sh", "-c", f"{frozen}; {freezer}"]).stdout.decode().strip()

    before = -1

    def still() -> bool:
        """Two looks, between which the host answers, see the same."""
        nonlocal before
        last, before = before, ticks()
        return before == last and (state() in ("1", "FROZEN", ""))

    until(still, "its processes stand still")
    assert "it was suspended for job" in cluster.run("resume", str(low)).stderr
    cluster.lab.exec(name, ["sh", "-c", "echo > /tmp/go"])
    assert cluster.wait(urgent)["state"] == "COMPLETED"
    stood = before
    until(lambda: ticks() > stood + 3, "it goes on")
    job = cluster.job(low)
    assert (job["state"], job["yields_to"], job["attempt"]) == ("RUNNING", [], 1)
    told = [what for _, what in job["history"]]
    assert told[-2:] == [f"suspended for job {urgent} of QOS urgent", f"goes on after job {urgent}"]
    cluster.rmx("cancel", str(low))
    cluster.wait(low, "CANCELLED")
