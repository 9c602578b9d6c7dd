"""Plans of single iterations on live hosts: jobs of unlike periods wait as FORESIGHT has planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, until

from .conftest import MakeCluster
from .test_admission import clashes, spans

pytestmark = pytest.mark.lab

# prints when it was ready for its iteration, when that began, and when it had communicated, which comes first
PROGRAM = """#!/usr/bin/env python3
import sys, time
import rm_iteration
for number in range(int(sys.argv[1])):
    ready = time.time()
    with rm_iteration.iteration():
        began = time.time()
        time.sleep(float(sys.argv[3]))
        ended = time.time()
        time.sleep(float(sys.argv[2]) - (time.time() - began))
    print(ready, began, ended, flush=True)
"""
JOBS = ((300, 90), (200, 60))  # period and communication, ms: their plan of 660 ms has two delays
ITERATIONS = (80, 115)


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(
        {
            "policies": {"comm": "foresight"},
            "policies.options.comm.foresight": {"guard": False},  # it finds that these need no plan
        },
        zones=1,
        hosts=2,
    )


def train(cluster: Cluster, tmp_path: Path, period_ms: int, comm_ms: int, iterations: int) -> int:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    options = ["--nodes=2", "--ntasks-per-node=1", "--launch=tasks", f"--period={period_ms}ms"]
    options += [f"--duty-cycle={comm_ms / period_ms}", "--bandwidth=90Mbit/s"]
    # a sleep is never too short: so much less that iterations keep to their profiles
    return cluster.submit(*options, script, iterations, (period_ms - 3) / 1000, (comm_ms - 3) / 1000)


def plan(cluster: Cluster, job: int) -> dict[str, Any] | None:
    """What the iteration client reads on the job's first host."""
    path = f"/var/lib/rm/jobs/{job}.1/schedule.json"
    found = cluster.lab.exec("z1h1", ["cat", path]).stdout
    document = json.loads(found) if found.strip() else {}
    return document if document.get("starts_us") else None


def test_jobs_begin_their_iterations_as_planned(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [train(cluster, tmp_path, *job, n) for job, n in zip(JOBS, ITERATIONS, strict=True)]
    for job in jobs:
        cluster.wait(job, "RUNNING")
    plans = [until(lambda job=job: plan(cluster, job), "the job has a plan") for job in jobs]
    assert [len(one["starts_us"]) for one in plans] == [2, 3]
    assert len({one["period_us"] for one in plans}) == 1
    until(lambda: all(len(spans(cluster, job)) > 30 for job in jobs), "they have gone on for a while")
    for job in jobs:
        cluster.wait(job, "COMPLETED")
    found = [spans(cluster, job) for job in jobs]
    begin = max(one[15][0] for one in found)
    end = min(one[-1][2] for one in found)
    together = [[s for s in one if begin < s[0] < end] for one in found]
    waited = [sorted(1000 * (s[1] - s[0]) for s in one) for one in together]
    assert all(one[-1] > 20 for one in waited), "iterations are delayed as planned"
    assert clashes(*together) <= sum(map(len, together)) // 5
