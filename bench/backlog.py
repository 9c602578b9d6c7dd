"""A queue of 50,000 jobs that wait behind a few that run, with the default settings: its first page, what the
daemon does meanwhile, and its restart."""

from __future__ import annotations

import signal
import statistics
import time

from bench.api import batch_per_s
from bench.cluster import Cluster, cluster
from bench.figure import Figure, Settings
from bench.listing import page_ms, submit_ms

JOBS, A_REQUEST = 50_000, 10_000
HOSTS, CPUS = 4, 4
SETTLE_S, IDLE_S = 5.0, 20.0
PAGE_TARGET_MS, IDLE_TARGET_PCT, RESTART_TARGET_S = 50.0, 2.0, 3.0


def idle_pct(made: Cluster) -> float:
    """Of one core, while nobody asks for anything."""
    time.sleep(SETTLE_S)
    before = made.cpu_s()
    time.sleep(IDLE_S)
    return 100 * (made.cpu_s() - before) / IDLE_S


def run(settings: Settings) -> list[Figure]:
    times = 3 if settings.quick else 7
    with cluster(hosts=HOSTS, cpus=CPUS) as made:
        for _ in range(JOBS // A_REQUEST):
            batch_per_s(made, A_REQUEST, cpus_per_task=CPUS, script="#!/bin/sh\nexec sleep infinity\n")
        idle = idle_pct(made)
        page = statistics.median(page_ms(made) for _ in range(times))
        added = statistics.median(submit_ms(made) for _ in range(times))
        memory = made.memory_bytes()
        made.end(signal.SIGKILL)
        restart = made.start()
        used = made.cpu_s()
        page_ms(made)
    pending = f"{JOBS:,} jobs of one user wait behind {HOSTS} that run"
    return [
        Figure("the first page of the queue", page, "ms", pending, PAGE_TARGET_MS),
        Figure("one submission by the API", added, "ms", pending),
        Figure("the daemon while nobody asks", idle, "%", f"of a core; {pending}", IDLE_TARGET_PCT),
        Figure("the daemon's memory", memory / 1e6, "MB", pending),
        Figure(
            "restart after SIGKILL until the first answer",
            restart,
            "s",
            f"{pending}; {used:.1f} s of it of a processor",
            RESTART_TARGET_S,
        ),
    ]
