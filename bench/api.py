"""Submissions through the API to a real daemon: each one acknowledged only when it is on the disk."""

from __future__ import annotations

import threading
import time
from typing import Any

from bench import peers
from bench.cluster import Cluster, cluster, spec
from bench.figure import Figure, Settings

BATCH_TARGET, CLIENTS_TARGET = 1_000.0, 300.0
BACKLOG = 10_000
TRUE_JOBS = "`true` jobs on 4 lab hosts with 4 slots each, all on this machine"


def batch_per_s(made: Cluster, count: int, **more: Any) -> float:
    client = made.client()
    body = {"specs": [spec(f"job{i % 50}", **more) for i in range(count)]}
    since = time.perf_counter()
    client.post("jobs", body=body)
    took = time.perf_counter() - since
    client.close()
    return count / took


def one_by_one_per_s(made: Cluster, count: int, clients: int, **more: Any) -> float:
    """Each client keeps one connection and waits for each acknowledgement."""
    failures: list[BaseException] = []

    def work() -> None:
        client = made.client()
        try:
            for i in range(count // clients):
                client.post("jobs", body={"spec": spec(f"job{i % 50}", **more)})
        except BaseException as error:  # a thread's failure must not pass for speed
            failures.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=work) for _ in range(clients)]
    since = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - since
    if failures:
        raise failures[0]
    return count / took


def run(settings: Settings) -> list[Figure]:
    count = 400 if settings.quick else 2_000
    with cluster(hosts=4) as made:
        held = "jobs held, so that nothing starts; SQLite with a sync per commit; 4 idle hosts"
        batch = batch_per_s(made, 1_000, hold=True)
        one = one_by_one_per_s(made, count // 4, 1, hold=True)
        eight = one_by_one_per_s(made, count, 8, hold=True)
        batch_per_s(made, BACKLOG, hold=True)
        late = one_by_one_per_s(made, count, 8, hold=True)
    with cluster(hosts=4) as made:
        since = time.perf_counter()
        starting = one_by_one_per_s(made, count, 8)
        made.wait_for_ends()
        ended = count / (time.perf_counter() - since)
    threads = "clients are threads of one process here"
    return [
        Figure(
            "one call with 1,000 jobs", batch, "jobs/s", held, BATCH_TARGET, True, peers.SUBMISSIONS_ARRAY
        ),
        Figure("one by one, 1 client", one, "jobs/s", held, peer=peers.SUBMISSIONS_ONE),
        Figure(
            "one by one, 8 clients",
            eight,
            "jobs/s",
            f"{held}; {threads}",
            CLIENTS_TARGET,
            True,
            peers.SUBMISSIONS_EIGHT,
        ),
        Figure(
            "one by one, 8 clients, with a long queue",
            late,
            "jobs/s",
            f"{BACKLOG:,} held jobs pending",
            CLIENTS_TARGET,
            True,
        ),
        Figure(
            "one by one, 8 clients, while jobs start",
            starting,
            "jobs/s",
            f"{TRUE_JOBS}: who submits and what starts share its processors",
            peer=peers.SUBMISSIONS_STARTING,
        ),
        Figure("the same, until all these jobs have ended", ended, "jobs/s", TRUE_JOBS),
    ]
