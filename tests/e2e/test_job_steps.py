"""Scripts that run once and start their tasks themselves, over three hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.e2e.conftest import MakeCluster

pytestmark = pytest.mark.lab
HOSTS = 3


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(zones=1, hosts=HOSTS, gpus_per_host=2)


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.tidy()


def submit(cluster: Cluster, directory: Path, lines: str, *words: str) -> int:
    script = directory / "job.sh"
    script.write_text(f"#!/bin/bash\n{lines}\n")
    return cluster.submit(*words, str(script))


def test_the_script_runs_once_while_all_hosts_are_its_own(cluster: Cluster, tmp_path: Path) -> None:
    echo = "echo on $SLURMD_NODENAME of $SLURM_JOB_NODELIST"
    lines = f"{echo}\nuntil [ -e /tmp/steps-go ]; do sleep 0.02; done\nexit 3"
    words = ("--launch=batch", "--nodes=3", "--ntasks-per-node=2", "--gpus-per-node=2")
    job_id = submit(cluster, tmp_path, lines, *words)
    cluster.all_started(job_id)
    first = cluster.job(job_id)["hosts"][0]
    cluster.until_said(job_id, f"on {first} of {first[:-1]}[1-3]\n")
    job = cluster.job(job_id)
    assert len(job["tasks"]) == 6
    assert "once, on the first host" in cluster.rmx("show", job_id)
    waiting = submit(cluster, tmp_path, "true", "--gpus=1")
    assert cluster.job(waiting)["state"] == "PENDING"  # all GPUs are taken
    cluster.write(first, "/tmp/steps-go", "")
    job = cluster.wait(job_id)
    assert (job["state"], job["exit"]) == ("FAILED", "3:0")
    assert cluster.wait(waiting)["state"] == "COMPLETED"
