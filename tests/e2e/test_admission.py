"""Single transfers are admitted on live hosts: jobs that share hosts communicate in turns, and never hang."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.marks import go

from .conftest import MakeCluster

pytestmark = pytest.mark.lab

# It declares its communication of 60 ms as longer: what lasts for twice as long as declared counts as over,
# and who has waited for as long goes on. On a busy machine messages and sleeps are late by much of that.
COMM_MS, COMPUTE_MS = 1000, 50
LONGEST_S = 20.0  # of a wait: half of that of a rank to which its agent says nothing
# prints of each communication when it was ready, when it began, and when it ended: hosts have one clock
PROGRAM = """#!/usr/bin/env python3
import os, sys, time
import rm_iteration, rm_turn
# a rank whose agent is late twice asks no more for long: a busy machine is late, also with the turn
rm_turn.ANSWER_S, rm_turn.MISSES = 40.0, sys.maxsize
while not os.path.exists("/var/tmp/go." + os.environ["SLURM_JOB_ID"]):
    time.sleep(0.02)
for number in range(int(sys.argv[1])):
    with rm_iteration.iteration():
        time.sleep(0.05)
        ready = time.time()
        with rm_iteration.communication():
            began = time.time()
            time.sleep(0.06)
            ended = time.time()
    print(ready, began, ended, flush=True)
"""
Span = tuple[float, float, float]


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({"policies": {"comm": "srsf-n"}}, zones=1, hosts=2)


def train(cluster: Cluster, tmp_path: Path, iterations: int) -> int:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    period_ms = COMPUTE_MS + COMM_MS
    options = ["--nodes=2", "--ntasks-per-node=1", "--launch=tasks", f"--period={period_ms}ms"]
    options += [f"--duty-cycle={COMM_MS / period_ms:.3f}", "--bandwidth=90Mbit/s"]
    return cluster.submit(*options, script, iterations)


def both_begin(cluster: Cluster, jobs: list[int]) -> None:
    """Neither has done a part of its work before the other is there."""
    for job in jobs:
        cluster.all_started(job)
    for job in jobs:
        go(cluster, job)


def spans(cluster: Cluster, job: int, rank: int = 0) -> list[Span]:
    text = cluster.said(job, rank)
    rows = [tuple(map(float, line.split())) for line in text.splitlines() if line.count(" ") == 2]
    return [row for row in rows if len(row) == 3]


def clashes(one: list[Span], other: list[Span]) -> int:
    """How often a communication of one job began while one of the other's went on."""
    marks = sorted([(s[1], s[2], 0) for s in one] + [(s[1], s[2], 1) for s in other])
    return sum(a[2] != b[2] and b[0] < a[1] - 0.002 for a, b in pairwise(marks))


def test_two_jobs_on_the_same_hosts_communicate_in_turns(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [train(cluster, tmp_path, 80) for _ in range(2)]
    both_begin(cluster, jobs)
    for job in jobs:
        cluster.wait(job, "COMPLETED")
    found = [spans(cluster, job) for job in jobs]
    assert [len(one) for one in found] == [80, 80]
    # they ask once both run and their hosts were told so; half of the whole is a wide margin
    begin = max(one[0][0] for one in found)
    end = min(one[-1][2] for one in found)
    together = [[s for s in one if begin + (end - begin) / 2 < s[0] < end] for one in found]
    assert min(map(len, together)) > 10
    assert clashes(*together) <= len(together[0]) // 10, "a machine that is busy may let one end late"
    waited = sorted(s[1] - s[0] for one in together for s in one)
    print("waits, ms:", [round(1000 * one, 2) for one in waited])
    assert waited[-1] > 0.004, "somebody was held"
    assert waited[-1] < LONGEST_S


def test_jobs_go_on_when_the_daemon_has_gone(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [train(cluster, tmp_path, 120) for _ in range(2)]
    both_begin(cluster, jobs)
    until(lambda: any(s[1] - s[0] > 0.004 for s in spans(cluster, jobs[0])), "somebody is held")
    cluster.restart()
    for job in jobs:
        cluster.wait(job, "COMPLETED")
    found = [spans(cluster, job, rank) for job in jobs for rank in (0, 1)]
    assert [len(one) for one in found] == [120] * 4
    assert max(s[1] - s[0] for one in found for s in one) < LONGEST_S
