"""A queue of 10,000 pending jobs: listing it, adding to it, the daemon's memory, and its restart."""

from __future__ import annotations

import signal
import statistics
import subprocess
import time

from bench import peers
from bench.api import batch_per_s
from bench.cluster import RMX, Cluster, cluster, spec
from bench.figure import Figure, Settings
from rm.client.client import JOBS_PAGE, Client
from rm.errors import RmError

JOBS = 10_000


def list_ms(made: Cluster) -> float:
    client = made.client()
    since = time.perf_counter()
    listed = len(client.get("jobs")["jobs"])
    took = 1000 * (time.perf_counter() - since)
    client.close()
    if listed < JOBS:
        raise RmError(f"Of {JOBS} jobs only {listed} were listed.")
    return took


def rows_ms(made: Cluster) -> float:
    client = Client(made.client())
    since = time.perf_counter()
    listed = len(client.rows())
    took = 1000 * (time.perf_counter() - since)
    client.connection.close()
    if listed < JOBS:
        raise RmError(f"Of {JOBS} jobs only {listed} were listed.")
    return took


def page_ms(made: Cluster) -> float:
    client = made.client()
    since = time.perf_counter()
    listed = len(client.get("jobs", limit=JOBS_PAGE)["jobs"])
    took = 1000 * (time.perf_counter() - since)
    client.close()
    if listed != JOBS_PAGE:
        raise RmError(f"A page of {JOBS_PAGE} jobs has {listed}.")
    return took


def command_ms(made: Cluster, *arguments: str) -> float:
    since = time.perf_counter()
    subprocess.run(
        [RMX, *arguments], env=made.environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return 1000 * (time.perf_counter() - since)


def submit_ms(made: Cluster) -> float:
    client = made.client()
    since = time.perf_counter()
    client.post("jobs", body={"spec": spec("one", ntasks=1, cpus_per_task=2)})
    took = 1000 * (time.perf_counter() - since)
    client.close()
    return took


def run(settings: Settings) -> list[Figure]:
    times = 3 if settings.quick else 7
    with cluster() as made:
        empty = made.memory_bytes()
        batch_per_s(made, JOBS)
        full = made.memory_bytes()
        listed = statistics.median(list_ms(made) for _ in range(times))
        rows = statistics.median(rows_ms(made) for _ in range(times))
        page = statistics.median(page_ms(made) for _ in range(times))
        shown = statistics.median(command_ms(made, "queue") for _ in range(times))
        added = statistics.median(submit_ms(made) for _ in range(2 * times))
        after = made.memory_bytes()
        made.end(signal.SIGKILL)
        restart = made.start()
        list_ms(made)
    pending = f"{JOBS:,} pending jobs"
    return [
        Figure(
            "GET /v1/jobs", listed, "ms", f"all of {pending}, decoded by the client", peer=peers.LIST_10000
        ),
        Figure("GET /v1/jobs/rows", rows, "ms", f"all of {pending}, decoded by the client", 60),
        Figure("GET /v1/jobs, the first page", page, "ms", f"the newest {JOBS_PAGE} of {pending}", 50),
        Figure("rmx queue as a process", shown, "ms", f"all of {pending}, as a table into a pipe", 150),
        Figure("one submission by the API", added, "ms", f"behind {pending}", peer=peers.SUBMIT_10000),
        Figure("the daemon's memory, empty", empty / 1e6, "MB"),
        Figure("the daemon's memory, full", full / 1e6, "MB", pending, peer=peers.MEMORY_10000),
        Figure("the daemon's memory, after the listings", after / 1e6, "MB", pending),
        Figure(
            "restart after SIGKILL until the first answer",
            restart,
            "s",
            f"{pending} in the store, none lost",
            peer=peers.LOST,
        ),
    ]
