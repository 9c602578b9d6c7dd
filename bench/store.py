"""What the store costs: `python -m bench.store [--url URL] [--directory DIR] [--json]`.

Without a URL it measures SQLite in a fresh file under the directory (default: the current one,
because what a sync costs depends on the disk) and, for comparison, the store in memory.
A durable commit cannot be cheaper than one sync of the disk, so that is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.figure import Figure, Settings
from rm.adapters.store.memory import MemoryStore
from rm.adapters.store.opening import open_store
from rm.core.jobs import events as ev
from rm.core.journal.journal import event_to_plain
from rm.core.model.job import Job, JobSpec, JobState, Task
from rm.core.model.network.links import LinkStats
from rm.core.store import STEP, Batch, Entry, Measured, Store, StoredAction

SMALL_COMMITS = 500
BATCH_JOBS = 1_000
BATCHES = 10
SCRIPT = "#!/bin/sh\n" + "echo a line of an ordinary job script\n" * 30


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def sync_ms(directory: Path) -> float:
    """The median time of appending 4 KiB to a file and syncing it."""
    with tempfile.TemporaryFile(dir=directory) as file:

        def once() -> None:
            os.write(file.fileno(), b"x" * 4096)
            os.fdatasync(file.fileno())

        return statistics.median(timed(once) for _ in range(200))


def step(events: Sequence[ev.Event]) -> Entry:
    """The journal's entry of one batch of events."""
    return Entry(1, STEP, {"n": 1, "events": [event_to_plain(e, 1) for e in events]})


def submission(jobs: Sequence[Job]) -> list[ev.Event]:
    return [ev.JobSubmitted(j.id, j.spec) for j in jobs]


def starts(jobs: Sequence[Job]) -> list[ev.Event]:
    return [ev.TasksStarted(j.id, 1, "h1", 2, (0,)) for j in jobs]


def measure(store: Store) -> dict[str, float]:
    if store.acquire_lease("bench", now_us=time.time_ns() // 1000, ttl_us=3_600_000_000) is None:
        sys.exit("Another daemon leads on this database: measure on one of its own.")
    loaded = store.load()
    version, job_id, action_id = loaded.version, loaded.next_job_id, loaded.next_action_id

    def commit(batch: Batch) -> float:
        nonlocal version
        took = timed(lambda: store.commit(batch, version))
        version += 1
        return took

    def new_jobs(count: int) -> tuple[Job, ...]:
        nonlocal job_id
        made = tuple(Job(job_id + i, JobSpec(f"job{i % 50}", "alice", SCRIPT), 1) for i in range(count))
        job_id += count
        return made

    small = []
    for _ in range(SMALL_COMMITS):
        jobs = new_jobs(1)
        launch = StoredAction(action_id, "launch", jobs[0].id, 1, "h1", {"hold": False})
        entry = step(submission(jobs))
        small.append(commit(Batch(events=(entry,), jobs=jobs, actions=(launch,))))
        action_id += 1

    submitted, started = [], []
    for _ in range(BATCHES):
        jobs = new_jobs(BATCH_JOBS)
        entry = step(submission(jobs))
        submitted.append(commit(Batch(events=(entry,), jobs=jobs)))
        running = tuple(
            replace(j, state=JobState.RUNNING, attempt=1, tasks=(Task(0, "h1", (0,)),), started_us=2)
            for j in jobs
        )
        entry = step(starts(running))
        started.append(commit(Batch(events=(entry,), jobs=running)))

    pairs = []
    for n in range(SMALL_COMMITS):
        both = [
            Measured(a, b, LinkStats(0.0, 180 + n % 7, 943_718_400, 12, 1))
            for a, b in ((f"h{n}", f"h{n + 1}"), (f"h{n + 1}", f"h{n}"))
        ]
        entry = step([ev.Measured(m.source, m.destination, m.stats) for m in both])
        pairs.append(commit(Batch(events=(entry,), measurements=tuple(both))))

    load = timed(store.load)
    listing = timed(lambda: store.jobs(limit=100))
    unfinished = len(store.load().jobs)
    return {
        "small_commit_ms": statistics.median(small),
        "small_commit_p99_ms": statistics.quantiles(small, n=100)[98],
        "small_commits_per_s": 1000 * len(small) / sum(small),
        "submit_1000_ms": statistics.median(submitted),
        "update_1000_ms": statistics.median(started),
        "measured_pair_ms": statistics.median(pairs),
        "jobs_per_s": 1000 * BATCH_JOBS * BATCHES / sum(submitted),
        "load_ms": load,
        "loaded_jobs": unfinished,
        "list_100_ms": listing,
    }


def run(settings: Settings) -> list[Figure]:
    del settings  # it takes a few seconds
    directory = Path("/var/tmp")
    sync = sync_ms(directory)
    with tempfile.TemporaryDirectory(dir=directory, prefix="rm-bench-store-") as folder:
        store = open_store(f"sqlite:///{folder}/rm.sqlite3")
        m = measure(store)
        store.close()
    floor = f"a durable commit cannot be cheaper than one sync of the disk, {sync:.2f} ms here"
    return [
        Figure("SQLite: one small commit, median", m["small_commit_ms"], "ms", floor),
        Figure("SQLite: one small commit, 99th percentile", m["small_commit_p99_ms"], "ms"),
        Figure("SQLite: 1,000 new jobs in one commit", m["submit_1000_ms"], "ms"),
        Figure("SQLite: 1,000 changed jobs in one commit", m["update_1000_ms"], "ms"),
        Figure("SQLite: one measured pair of hosts, median", m["measured_pair_ms"], "ms"),
        Figure("SQLite: load all", m["load_ms"], "ms", f"{m['loaded_jobs']:,} unfinished jobs"),
    ]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--url", help="measure this database instead (it will be filled with jobs)")
    options.add_argument("--directory", type=Path, default=Path.cwd())
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()

    figures: dict[str, Any] = {"sync_ms": sync_ms(chosen.directory), "stores": {}}
    if chosen.url:
        store = open_store(chosen.url)
        figures["stores"][store.name] = measure(store)
        store.release_lease()
        store.close()
    else:
        with tempfile.TemporaryDirectory(dir=chosen.directory, prefix="bench-store-") as directory:
            store = open_store(f"sqlite:///{directory}/rm.sqlite3")
            figures["stores"]["sqlite"] = measure(store)
            store.close()
        figures["stores"]["memory"] = measure(MemoryStore())

    if chosen.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"one 4 KiB append and sync of the disk: {figures['sync_ms']:.3f} ms")
    for name, values in figures["stores"].items():
        print(f"\n{name}")
        for key, value in values.items():
            print(f"  {key:24} {value:10,.2f}")


if __name__ == "__main__":
    main()
