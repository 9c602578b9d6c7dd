"""What `rmx usage` asks of the database after 1,000,000 jobs that ended within a year."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.figure import Figure, Settings
from rm.adapters.store.opening import open_store
from rm.core.sharing.ended import DAY_US, HOUR_US, Ended, Sums
from rm.core.sharing.usage_query import Asked
from rm.core.store import Batch, Store
from rm.errors import RmError

JOBS, DAYS = 1_000_000, 365
USERS, ACCOUNTS, HOSTS = 200, 20, 300
AT_ONCE = 1_000  # in one commit
TARGET_MS = 1_000.0


def jobs(chance: random.Random) -> Iterator[Ended]:
    """Evenly over a year, most of them of few users; each ran on one host."""
    for number in range(JOBS):
        at_us = number * DAYS * DAY_US // JOBS
        user = min(USERS - 1, int(chance.expovariate(8 / USERS)))
        us = chance.randrange(60_000_000, 12 * HOUR_US)
        yield Ended(
            at_us, f"account{user % ACCOUNTS}", f"user{user}", chance.choice(("normal", "normal", "high")),
            chance.choice(("main", "main", "gpu", "long")), f"node{chance.randrange(HOSTS)}",
            Sums(jobs=1, elapsed_us=us, waited_us=us // 9),
            Sums(cpu_us=8 * us, cpu_watched_us=8 * us, cpu_busy_us=5 * us, mem_mib_s=us // 100, gpu_us=us,
                 gpu_watched_us=us, gpu_busy_us=us // 2, energy_mj=us // 5, read_bytes=us, written_bytes=us),
        )  # fmt: skip


def fill(store: Store) -> float:
    """Seconds that all commits took together."""
    took, version, all_of = 0.0, 0, jobs(random.Random(1))
    while some := tuple(islice(all_of, AT_ONCE)):
        since = time.perf_counter()
        store.commit(Batch(ended=some), version)
        took += time.perf_counter() - since
        version += 1
    return took


def ask_ms(store: Store, asked: Asked, times: int, lines: int) -> float:
    found = []
    for _ in range(times):
        since = time.perf_counter()
        told = store.usage(asked)
        found.append(1000 * (time.perf_counter() - since))
        if len(told) < lines:
            raise RmError(f"Of {lines} lines by {', '.join(asked.by)} only {len(told)} were told.")
    return statistics.median(found)


def run(settings: Settings) -> list[Figure]:
    times = 3 if settings.quick else 9
    year = DAYS * DAY_US
    # from the middle of a day to the middle of another: days, and hours at both ends
    cut = (11 * HOUR_US, year - 7 * HOUR_US)
    questions = {
        "by account, of the year": (Asked(("account",), 0, year), ACCOUNTS),
        "by account and user, between two hours": (Asked(("account", "user"), *cut), 100),
        "by account, user, QOS and partition": (Asked(("account", "user", "qos", "partition"), 0, year), 500),
        "by host, of the year": (Asked(("host",), 0, year), HOSTS),
        "by day and account": (Asked(("day", "account"), 0, year), DAYS * ACCOUNTS // 2),
        "one user by day": (Asked(("day",), 0, year, (("user", "user3"),)), DAYS),
    }
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rm-bench-usage-") as folder:
        file = Path(folder) / "rm.sqlite3"
        store = open_store(f"sqlite:///{file}")
        store.acquire_lease("bench", now_us=time.time_ns() // 1000, ttl_us=3_600_000_000)
        took = fill(store)
        if sum(sums.jobs for _, sums in store.usage(Asked(("account",), 0, year))) != JOBS:
            raise RmError("The sums are not of all jobs.")
        told = {name: ask_ms(store, asked, times, lines) for name, (asked, lines) in questions.items()}
        store.close()
        size = file.stat().st_size
    of = f"SQLite, {JOBS:,} jobs of {USERS} users on {HOSTS} hosts that ended in a year"
    return [
        *(Figure(name, ms, "ms", of, TARGET_MS) for name, ms in told.items()),
        Figure("adding a job up, of 1,000 in a commit", 1e6 * took / JOBS, "µs", of),
        Figure(
            "the sums take", size / 1e6, "MB", f"{of}; hours are kept here for all of it, usually for 41 days"
        ),
    ]
