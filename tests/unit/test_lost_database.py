"""A database that is deleted or replaced, under a living daemon or between two: nobody goes on without it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rm.adapters.store import database
from rm.adapters.store.opening import open_store
from rm.adapters.store.sql import SqlStore
from rm.core.store import Batch, Entry
from rm.daemon.leading.witness import Witness
from rm.errors import StoreError, StoreUnavailable
from tests import builders


def led(path: Path) -> SqlStore:
    """An open store with one job, whose lease is held."""
    store = open_store(f"sqlite:///{path}")
    assert store.acquire_lease("a", 0, 1) is not None
    version = store.load().version
    store.commit(Batch(jobs=(builders.job(1),), events=(Entry(1, "submit"),)), version)
    return store


def delete(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.replace(path)


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


HARMS = [delete, replace, delete_log]


@pytest.mark.parametrize("harm", HARMS)
def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "rm.sqlite3"
    store = led(path)
    harm(path)
    left = sorted(tmp_path.iterdir())
    with pytest.raises(StoreError, match="while the daemon used it") as refused:
        store.commit(Batch(jobs=(builders.job(2),), events=(Entry(2, "submit"),)), 1)
    rescued = tmp_path / "rm.sqlite3.rescued"
    assert f"rmx restore {rescued}" in refused.value.hint
    with pytest.raises(StoreError):
        store.renew_lease(0, 1)  # an idle daemon finds out by its lease
    assert sorted(tmp_path.iterdir()) == sorted([*left, rescued])  # and no empty database was made
    store.close()
    saved = open_store(f"sqlite:///{rescued}")
    assert 1 in [job.id for job in saved.jobs()]
    saved.close()


@pytest.mark.parametrize("life", ["first", "second"])
def test_another_process_that_closes_the_database_leaves_its_log(tmp_path: Path, life: str) -> None:
    path = tmp_path / "rm.sqlite3"
    if life == "second":
        open_store(f"sqlite:///{path}").close()
    store = led(path)
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM jobs'); c.close()"
    subprocess.run([sys.executable, "-c", look, path], check=True)
    assert Path(f"{path}-wal").exists()
    store.commit(Batch(jobs=(builders.job(2),), events=(Entry(2, "submit"),)), 1)
    assert [job.id for job in store.jobs()] == [1, 2]
    store.close()


def test_who_did_not_lead_saves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rm.sqlite3"
    store = open_store(f"sqlite:///{path}")
    delete(path)
    with pytest.raises(StoreError, match="deleted"):
        store.acquire_lease("a", 0, 1)
    store.close()
    assert list(tmp_path.iterdir()) == []


def start(path: Path, state: Path) -> int:
    """A start of the daemon, as far as the database goes: the version that it finds."""
    store, witness = open_store(f"sqlite:///{path}"), Witness(state)
    try:
        loaded = store.load()
        witness.check(loaded, store.name)
        store.acquire_lease("a", 0, 1)
        version = store.commit(Batch(events=(Entry(1, "step"),)), loaded.version)
        witness.note(version)
        return version
    finally:
        store.close()
        witness.close()


def test_a_database_with_all_that_was_acknowledged_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "rm.sqlite3"
    assert [start(path, tmp_path) for _ in range(3)] == [1, 2, 3]
    led(path).close()  # led from elsewhere meanwhile
    assert start(path, tmp_path) == 5
    (tmp_path / "acknowledged").write_text("no such thing\n")
    assert start(path, tmp_path) == 6


def test_an_older_copy_of_the_database_is_refused_until_somebody_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rm.sqlite3"
    start(path, tmp_path)
    shutil.copy(path, tmp_path / "old")
    start(path, tmp_path)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(StoreError, match="at version 1, and this daemon has acknowledged") as refused:
        start(path, tmp_path)
    assert f"rm {tmp_path}/acknowledged" in refused.value.hint
    (tmp_path / "acknowledged").unlink()
    assert start(path, tmp_path) == 2


def test_an_empty_database_is_no_new_cluster_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "rm.sqlite3"
    start(path, tmp_path)
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="which is new, and"):
            start(path, tmp_path)
    (tmp_path / "acknowledged").unlink()
    assert start(path, tmp_path) == 1


def test_text_that_is_not_utf_8_costs_its_row_only(tmp_path: Path) -> None:
    path = tmp_path / "rm.sqlite3"
    store = led(path)
    version = store.load().version
    batch = Batch(
        jobs=(builders.job(2), builders.job(3)),
        hosts=(builders.host("h1"), builders.host("h2")),
        documents=(("good", {"a": 1}), ("bad", {"a": 1})),
    )
    store.commit(batch, version)
    with closing(sqlite3.connect(path)) as c:
        broken = "CAST(CAST(body AS BLOB) || x'ff' AS TEXT)"
        c.execute(f"UPDATE jobs SET body = {broken} WHERE id = 2")
        c.execute(f"UPDATE job_specs SET body = {broken} WHERE id = 3")
        c.execute("UPDATE hosts SET name = CAST(x'6832ff' AS TEXT) WHERE name = 'h2'")
        c.execute(f"UPDATE documents SET body = {broken} WHERE name = 'bad'")
        c.commit()
    loaded = store.load()
    assert [job.id for job in loaded.jobs] == [1]
    assert [host.name for host in loaded.hosts] == ["h1"]
    assert [name for name, _ in loaded.documents] == ["good"]
    assert {(d.kind, d.key[0].encode("utf-8", "surrogateescape")) for d in loaded.damaged} == {
        ("job", b"2"), ("job", b"3"), ("host", b"h2\xff"), ("document", b"bad"),
    }  # fmt: skip
    store.set_aside(loaded.damaged, 5)
    assert len(store.aside()) == 4
    after = store.load()
    assert (after.damaged, after.jobs, after.hosts) == ((), loaded.jobs, loaded.hosts)
    store.close()


@pytest.mark.parametrize("mode", ["NORMAL", "EXCLUSIVE"])
def test_a_database_that_is_locked_is_tried_again_and_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    path = tmp_path / "rm.sqlite3"
    led(path).close()
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA locking_mode={mode}")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE cluster SET holder = 'b'")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="locked"):
                open_store(f"sqlite:///{path}")
        other.execute("ROLLBACK")
    open_store(f"sqlite:///{path}").close()
    opened = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{fd}"))
    assert str(path) not in opened
