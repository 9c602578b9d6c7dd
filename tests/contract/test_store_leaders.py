"""What every store does for several daemons: one leads, and readers see its whole commits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm.core.store import Batch, Doors, Entry, StoredAction
from rm.errors import StaleLeader
from tests import builders

# ── leaders ──


def test_only_the_holder_of_the_lease_commits(database: Any) -> None:
    one, two = database.open(), database.open()
    assert not one.renew_lease(now_us=0, ttl_us=100)
    with pytest.raises(StaleLeader):
        one.commit(Batch(), 0)
    assert one.acquire_lease("one", now_us=0, ttl_us=100) == 1
    seen = two.lease()
    assert (seen.holder, seen.epoch, seen.ttl_us) == ("one", 1, 100)
    assert two.acquire_lease("two", now_us=10**6, ttl_us=100) is None  # another's clock says nothing
    with pytest.raises(StaleLeader):
        two.commit(Batch(), 0)
    assert one.commit(Batch(jobs=(builders.job(1),)), 0) == 1
    assert one.renew_lease(now_us=50, ttl_us=100)
    assert two.acquire_lease("two", now_us=0, ttl_us=100, over=seen) is None  # it was renewed
    assert two.acquire_lease("two", now_us=0, ttl_us=100, over=two.lease()) == 2
    with pytest.raises(StaleLeader):
        one.commit(Batch(jobs=(builders.job(2),)), 1)
    assert not one.renew_lease(now_us=160, ttl_us=100)
    one.release_lease()  # no longer its own: the other one stays leader
    assert two.commit(Batch(jobs=(builders.job(2),)), 1) == 2
    assert [j.id for j in one.load().jobs] == [1, 2]


def test_a_version_is_committed_once(database: Any, store: Any) -> None:
    store.commit(Batch(jobs=(builders.job(1),)), 0)
    for wrong in (0, 2):
        with pytest.raises(StaleLeader):
            store.commit(Batch(jobs=(builders.job(2),)), wrong)
    assert [j.id for j in database.open().load().jobs] == [1]


def test_a_restarted_holder_leads_at_once_and_fences_its_former_self(database: Any) -> None:
    before, after = database.open(), database.open()
    assert before.acquire_lease("daemon", now_us=0, ttl_us=10**9) == 1
    assert after.acquire_lease("daemon", now_us=1, ttl_us=10**9) == 2
    with pytest.raises(StaleLeader):
        before.commit(Batch(), 0)
    assert after.commit(Batch(), 0) == 1


def test_a_released_lease_is_free(database: Any, store: Any) -> None:
    store.release_lease()
    with pytest.raises(StaleLeader):
        store.commit(Batch(), 0)
    assert not store.renew_lease(now_us=1, ttl_us=1)
    assert database.open().acquire_lease("two", now_us=1, ttl_us=1) == 2


def test_the_lease_says_where_its_holder_is_reached(database: Any) -> None:
    one, two = database.open(), database.open()
    doors = Doors("https://one:6832", "http://one:8080/", "10.0.0.1")
    assert one.acquire_lease("one", now_us=0, ttl_us=100, doors=doors) == 1
    assert two.lease().doors == doors
    one.renew_lease(now_us=50, ttl_us=100)
    one.commit(Batch(), 0)
    assert two.lease().doors == doors
    page = Doors(page="https://rm.example.org/")
    assert two.acquire_lease("two", now_us=0, ttl_us=100, over=two.lease(), doors=page) == 2
    assert one.lease().doors == page
    assert one.acquire_lease("one", now_us=0, ttl_us=100, over=one.lease()) == 3
    assert two.lease().doors == Doors()  # never a former leader's


def test_readers_see_whole_commits_while_one_writes(database: Any, store: Any) -> None:
    """Every commit adds two jobs, an action and an entry: a view that splits one would not add up."""
    commits, failures, done = 60, [], threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                loaded = store.load()
                seen = (len(loaded.jobs), len(loaded.actions), loaded.next_job_id)
                if seen != (2 * loaded.version, loaded.version, 2 * loaded.version + 1):
                    failures.append((loaded.version, seen))
                if len(store.jobs()) % 2:
                    failures.append("half a commit")
        except Exception as e:
            failures.append(e)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for r in readers:
        r.start()
    try:
        for v in range(commits):
            jobs = (builders.job(2 * v + 1), builders.job(2 * v + 2))
            action = StoredAction(v + 1, "launch", 2 * v + 1)
            assert store.commit(Batch(jobs=jobs, actions=(action,), events=(Entry(v, "submit"),)), v) == v + 1
    finally:
        done.set()
        for r in readers:
            r.join()
    assert failures == []
    assert store.load().version == commits


# ── crashes ──


def test_a_killed_writer_loses_nothing_acknowledged(make_durable: Callable[[], Any]) -> None:
    """SIGKILL between and during commits: all that was acknowledged is there, and whole."""
    database = make_durable()
    writer = Path(__file__).with_name("store_writer.py")
    acknowledged = 0
    argv, pipe = [sys.executable, str(writer), database.url], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as writers:
        assert writers.stdin
        assert writers.stdout
        for life, commits in enumerate((1, 7, 20, 3, 12), start=1):
            print(file=writers.stdin, flush=True)  # the next one may begin
            process = int(writers.stdout.readline())
            for _ in range(commits):
                acknowledged = int(writers.stdout.readline())
            os.kill(process, signal.SIGKILL)  # while it is inside a later commit
            while (line := writers.stdout.readline()) != f"ended by {signal.SIGKILL:d}\n":
                acknowledged = int(line)

            store = database.open()
            assert store.acquire_lease("writer", life, 1) == 2 * life
            loaded = store.load()
            assert loaded.version >= acknowledged
            # the writer gives each commit three jobs, one action and one entry
            assert [j.id for j in loaded.jobs] == list(range(1, 3 * loaded.version + 1))
            assert [a.id for a in loaded.actions] == list(range(1, loaded.version + 1))
            journal = store.journal(limit=10**6)
            assert [e.body["version"] for _, e in journal] == list(range(1, loaded.version + 1))
            following = 3 * loaded.version + 1, loaded.version + 1
            assert (loaded.next_job_id, loaded.next_action_id) == following
            store.close()
        assert writers.communicate() == ("", "")
