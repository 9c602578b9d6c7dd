"""`preemptive` on live hosts: a long transfer stands still while a job that ends sooner communicates."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster import Cluster, until
from tests.e2e.marks import go

from .conftest import MakeCluster
from .test_admission import Span, spans

pytestmark = pytest.mark.lab

STEP_S = 0.005
LONG, LONG_STEPS, SHORT, SHORT_STEPS = 20, 80, 70, 24  # transfers of the two jobs, and steps of each
# They declare their communication as longer: who has been held for twice as long as the other declared goes
# on, and on a busy machine messages and sleeps are late.
DECLARED = 5
# communicates in steps, and prints when each was made, then when it was ready, began and ended. At the end of
# a transfer the ranks wait for each other, as in an all-reduce: else one that is late once stays so
PROGRAM = """#!/usr/bin/env python3
import os, socket, sys, time
import rm_iteration, rm_turn
# a rank whose agent is late twice asks no more for long: a busy machine is late, also with the turn
rm_turn.ANSWER_S, rm_turn.MISSES = 40.0, sys.maxsize
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    link = socket.create_server(place).accept()[0]
else:
    while True:
        try:
            link = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.02)
while not os.path.exists("/var/tmp/go." + os.environ["SLURM_JOB_ID"]):
    time.sleep(0.02)
for number in range(int(sys.argv[1])):
    with rm_iteration.iteration():
        time.sleep(float(sys.argv[2]))
        ready = time.time()
        with rm_iteration.communication():
            began, steps = time.time(), []
            for _ in range(int(sys.argv[3])):
                time.sleep(0.005)
                steps.append(time.time())
            try:
                link.send(b"x")
                link.recv(1)
            except OSError:
                sys.exit()  # the job is cancelled, and the other rank has ended
    print(*steps)
    print(ready, began, steps[-1], flush=True)
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({"policies": {"comm": "preemptive"}}, zones=1, hosts=2)


def train(
    cluster: Cluster, tmp_path: Path, iterations: int, compute_ms: int, steps: int, minutes: int
) -> int:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    comm_ms = round(1000 * STEP_S * steps * DECLARED)
    options = ["--nodes=2", "--ntasks-per-node=1", "--launch=tasks", f"--period={compute_ms + comm_ms}ms"]
    options += [f"--duty-cycle={comm_ms / (compute_ms + comm_ms):.4f}", "--bandwidth=90Mbit/s"]
    return cluster.submit(*options, f"--time={minutes}", script, iterations, compute_ms / 1000, steps)


def long_and_short(cluster: Cluster, tmp_path: Path, long: int) -> tuple[int, int]:
    """400 ms of communication of a job that lasts an hour, and 120 ms of one that lasts five minutes. Neither
    has done a part of its work before the other is there."""
    jobs = (
        train(cluster, tmp_path, long, 50, LONG_STEPS, 60),
        train(cluster, tmp_path, SHORT, 100, SHORT_STEPS, 5),
    )
    for job in jobs:
        cluster.all_started(job)
    for job in jobs:
        go(cluster, job)
    return jobs


def steps_of(cluster: Cluster, job: int, rank: int) -> list[list[float]]:
    """Those of each transfer."""
    rows = [line.split() for line in cluster.said(job, rank).splitlines()]
    return [[float(word) for word in row] for row in rows if len(row) > 3]


def within(span: Span, others: list[Span]) -> bool:
    return any(other[1] < span[1] and span[2] < other[2] for other in others)


def test_a_long_transfer_stands_still_for_a_short_one_and_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    long, short = long_and_short(cluster, tmp_path, 10_000)
    cluster.wait(short, "COMPLETED")
    cluster.rmx("cancel", long)
    cluster.wait(long, "CANCELLED")
    for rank in (0, 1):
        each = steps_of(cluster, long, rank)
        assert {len(one) for one in each} == {LONG_STEPS}  # of each transfer all
        steps = [step for one in each for step in one]
        met = [s for s in spans(cluster, short, rank) if within(s, spans(cluster, long, rank))]
        assert len(met) > 20
        # without a hold it makes nearly as many steps; it makes some until it is held, more on a busy machine
        made = sorted(sum(s[1] < step < s[2] for step in steps) for s in met)
        print(f"steps of the long one within each of {len(met)} transfers of the short one:", made)
        assert made[len(made) // 2] <= SHORT_STEPS // 4
        waited = sorted(s[1] - s[0] for s in met)
        print("the short one waited, ms:", [round(1000 * one, 1) for one in waited])
        lasted = sorted(s[2] - s[1] for s in spans(cluster, long, rank))
        assert waited[len(waited) // 2] < lasted[len(lasted) // 2] / 4, "the long transfer is not waited for"


def test_held_transfers_go_on_when_the_daemon_has_gone(cluster: Cluster, tmp_path: Path) -> None:
    long, short = long_and_short(cluster, tmp_path, LONG)
    until(lambda: any(within(s, spans(cluster, long)) for s in spans(cluster, short)), "one is held")
    cluster.kill()
    time.sleep(1.0)
    cluster.start()
    for job in (long, short):
        cluster.wait(job, "COMPLETED")
    assert [len(one) for one in steps_of(cluster, long, 1)] == [LONG_STEPS] * LONG
