"""Job arrays: how fast many short elements turn over on lab hosts, and what an array of many that wait costs.

The daemon, the hosts' agents and the elements share this machine's cores, whose time is the bound.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bench import peers
from bench.cluster import Cluster, cluster, spec
from bench.figure import Figure, Settings
from bench.running import HOSTS, SLOTS, spawns_per_s
from rm.errors import RmError

RATE_TARGET, SUBMIT_TARGET_MS, LIST_TARGET_MS, BYTES_TARGET = 600.0, 50.0, 20.0, 100.0
WAITING = 100_000
ARRAYS = 20  # of so many elements that wait: one alone is less than what memory is counted by
PATIENCE_S = 600.0


def busy_s() -> float:
    """Processor time of everything on this machine so far."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, _cpu_line()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _cpu_line() -> list[str]:
    with Path("/proc/stat").open() as file:
        return file.readline().split()


def run_array(made: Cluster, count: int) -> tuple[float, float, float]:
    """(elements per second, ms of processor per element of the daemon, and of all other programs): from the
    submission to the end of the last of `count` elements."""
    client = made.client()
    since, daemon_s, all_s = time.perf_counter(), made.cpu_s(), busy_s()
    job = client.post("jobs", body={"spec": spec("turnover", array=f"0-{count - 1}")})["job"]
    client.get("jobs", job, "wait", timeout_s=PATIENCE_S)
    took = time.perf_counter() - since
    daemon_s, all_s = made.cpu_s() - daemon_s, busy_s() - all_s
    record = client.get("jobs", job)["job"]
    client.close()
    if record["state"] != "COMPLETED":
        raise RmError(f"An array of {count} elements of `true` is {record['state']} after {took:.0f} s.")
    return count / took, 1000 * daemon_s / count, 1000 * (all_s - daemon_s) / count


def waiting(made: Cluster, times: int) -> tuple[float, float, float]:
    """(ms of a submission of 100,000 elements, ms of a listing, bytes of the daemon's memory an element)."""
    client = made.client()
    wide = spec("waits", array=f"0-{WAITING - 1}")
    client.post("jobs", body={"spec": wide})
    before, submitted, listed = made.memory_bytes(), [], []
    for _ in range(ARRAYS):
        since = time.perf_counter()
        client.post("jobs", body={"spec": wide})
        submitted.append(1000 * (time.perf_counter() - since))
    grown = max(0, made.memory_bytes() - before)
    for _ in range(times):
        since = time.perf_counter()
        client.get("jobs", "rows")
        listed.append(1000 * (time.perf_counter() - since))
    client.close()
    return statistics.median(submitted), statistics.median(listed), grown / (ARRAYS * WAITING)


def run(settings: Settings) -> list[Figure]:
    count = 2_000 if settings.quick else 10_000
    with cluster(hosts=HOSTS, cpus=SLOTS // HOSTS) as made:
        run_array(made, 200)
        rate, daemon_ms, others_ms = run_array(made, count)
        bare = spawns_per_s(500)
    with cluster() as made:
        submit_ms, list_ms, element_bytes = waiting(made, 5 if settings.quick else 15)
    cores = os.cpu_count() or 1
    bound = (
        f"{cores} cores; an element takes {daemon_ms:.2f} ms of the daemon and {others_ms:.2f} ms of the rest"
    )
    return [
        Figure(
            f"an array of {count:,} elements of `true` on {SLOTS} slots",
            rate,
            "/s",
            f"one submission to the last end; {bound}, of which /bin/true alone is {1000 / bare:.2f} ms",
            RATE_TARGET,
            True,
            peers.ARRAY_10000,
        ),
        Figure("processor time an element, the daemon", daemon_ms, "ms"),
        Figure("processor time an element, all other programs", others_ms, "ms", "agents, elements, disk"),
        Figure(f"submitting an array of {WAITING:,}", submit_ms, "ms", f"of {ARRAYS}", SUBMIT_TARGET_MS),
        Figure(
            f"listing {ARRAYS + 1} arrays of {WAITING:,}", list_ms, "ms", "GET /v1/jobs/rows", LIST_TARGET_MS
        ),
        Figure("the daemon's memory, a waiting element", element_bytes, "bytes", "", BYTES_TARGET),
    ]
