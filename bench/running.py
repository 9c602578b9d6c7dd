"""From the submission to the first instruction, and many short jobs end to end, on lab hosts.

The daemon, the hosts' agents and the jobs share this machine's cores.
"""

from __future__ import annotations

import os
import statistics
import time

from bench import peers
from bench.cluster import Cluster, cluster, spec
from bench.figure import Figure, Settings, p95
from rm.errors import RmError

START_TARGET_MS, THROUGHPUT_TARGET = 50.0, 100.0
HOSTS, SLOTS = 4, 16
WIDE_HOSTS = 16
# bash reads the clock itself: a `date` would add a process of its own
CLOCK = '#!/bin/bash\necho "$EPOCHREALTIME"\n'


def start_ms(made: Cluster) -> float:
    """From before the request to the time that the job's script read first."""
    client = made.client()
    since = time.time()
    job = client.post("jobs", body={"spec": spec("clock", CLOCK)})["job"]
    client.get("jobs", job, "wait", timeout_s=30)
    told = b"".join(client.stream("jobs", job, "logs"))
    client.close()
    return 1000 * (float(told) - since)


def run_all(made: Cluster, count: int) -> float:
    """Jobs per second: `count` jobs in one call until the last one has ended."""
    client = made.client()
    since = time.perf_counter()
    jobs = client.post("jobs", body={"specs": [spec(f"true{i % 50}") for i in range(count)]})["jobs"]
    made.wait_for_ends()
    took = time.perf_counter() - since
    if client.get("jobs", jobs[-1])["job"]["state"] != "COMPLETED":
        raise RmError("A job that only says `true` failed.")
    client.close()
    return count / took


def spawns_per_s(count: int) -> float:
    """/bin/true one after the other, without any batch system."""
    since = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    return count / (time.perf_counter() - since)


def run(settings: Settings) -> list[Figure]:
    with cluster(hosts=HOSTS, cpus=SLOTS // HOSTS) as made:
        for _ in range(3):
            start_ms(made)
        starts = [start_ms(made) for _ in range(20 if settings.quick else 60)]
        before = made.cpu_s()
        rate = run_all(made, 1_000)
        daemon_ms = made.cpu_s() - before
        longer = None if settings.quick else run_all(made, 5_000)
        bare = spawns_per_s(500)
    wide = None
    if not settings.quick:
        with cluster(hosts=WIDE_HOSTS, cpus=SLOTS // HOSTS) as made:
            wide = run_all(made, 1_000)
    idle = f"of {len(starts)}; idle lab of {HOSTS} hosts, connections kept open, one clock"
    figures = [
        Figure(
            "submission to first instruction, median",
            statistics.median(starts),
            "ms",
            idle,
            START_TARGET_MS,
            peer=peers.START_MEDIAN,
        ),
        Figure("submission to first instruction, 95th percentile", p95(starts), "ms", peer=peers.START_P95),
        Figure(
            "1,000 `true` jobs on 16 slots",
            rate,
            "jobs/s",
            f"one submission to the last end; the daemon used {daemon_ms:.1f} ms of processor per job",
            THROUGHPUT_TARGET,
            True,
            peers.JOBS_16_SLOTS,
        ),
    ]
    if longer is not None:
        figures.append(Figure("5,000 `true` jobs on 16 slots", longer, "jobs/s", peer=peers.ARRAY_10000))
    if wide is not None:
        what = f"1,000 `true` jobs on {WIDE_HOSTS * SLOTS // HOSTS} slots"
        figures.append(Figure(what, wide, "jobs/s", f"{WIDE_HOSTS} lab hosts", peer=peers.JOBS_64_SLOTS))
    figures.append(
        Figure("/bin/true alone, one after the other", bare, "/s", f"{bare / rate:.0f} times as many")
    )
    return figures
