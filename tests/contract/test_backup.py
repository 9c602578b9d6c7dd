"""Backups of a database that is in use, on both kinds of databases, and what they bring back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from rm.adapters.store import backup as module
from rm.adapters.store.backup import IDS_LEFT_OUT, back_up_to, found_schema, restore_from
from rm.adapters.store.migrate import MIGRATIONS, head, make_for_owner, upgrade
from rm.adapters.store.sql import SqlStore
from rm.bootstrap.process import log_place, make_state_dir
from rm.cli.main import rmx
from rm.config import Config
from rm.config.sections import DaemonConfig
from rm.core.model.asked.array import Array
from rm.core.model.job import JobState, Task
from rm.core.store import Batch, Entry
from rm.errors import ConfigError, Conflict, StoreError, UsageError
from rm.web.doors.listener import claimed
from tests import builders
from tests.contract.conftest import Database
from tests.contract.opened import open_store

ACCOUNT = 4321  # the daemon's


def led(url: str, *jobs: int) -> Any:
    store = open_store(url)
    assert store.acquire_lease("a", 0, 1) is not None
    for job in jobs:
        store.commit(Batch(jobs=(builders.job(job),), events=(Entry(job, "step"),)), store.load().version)
    return store


def ids(store: Any) -> list[int]:
    return [job.id for job in store.jobs()]


def test_a_backup_of_a_database_in_use_brings_back_what_was_committed(
    make_durable: Callable[[], Database], tmp_path: Path
) -> None:
    url, file, kept = make_durable().url, tmp_path / "backup", tmp_path / "kept"
    store = led(url, 1, 2)
    assert back_up_to(url, file) == file.stat().st_size > 0
    assert file.stat().st_mode & 0o777 == 0o600
    version = store.load().version
    store.commit(Batch(jobs=(builders.job(3),)), version)  # goes on meanwhile
    cluster, after = store.load().cluster, store.load().version
    with pytest.raises(UsageError, match="exists already"):
        back_up_to(url, file)
    store.close()

    done = restore_from(url, file, kept)
    assert (done.jobs, done.schema) == (2, head())
    again = led(url)
    loaded = again.load()
    assert ids(again) == [1, 2]
    assert (loaded.cluster, loaded.next_job_id) == (cluster, 3 + IDS_LEFT_OUT)
    assert loaded.version > after  # nobody takes it for an older copy
    again.commit(Batch(jobs=(builders.job(loaded.next_job_id),)), loaded.version)
    again.close()
    assert done.before is not None  # and what was there before can be had back
    restore_from(url, done.before, tmp_path / "second")
    last = open_store(url)
    assert ids(last) == [1, 2, 3]
    last.close()


@pytest.mark.postgres
def test_the_url_of_the_database_may_have_spaces(
    make_postgres: Callable[[], Database], tmp_path: Path
) -> None:
    """In the path of its socket, for one, or in options."""
    url, file = make_postgres().url + "&options=-c%20statement_timeout%3D0", tmp_path / "backup"
    led(url, 1).close()
    assert back_up_to(url, file) > 0
    assert restore_from(url, file, tmp_path / "kept").jobs == 1


@pytest.mark.parametrize("hold", [True, False])
def test_what_may_have_run_since_is_marked_and_what_waited_held(
    make_durable: Callable[[], Database], tmp_path: Path, hold: bool
) -> None:
    url, file = make_durable().url, tmp_path / "backup"
    odd = 'a\\u0000 "array":{ b'  # what looks like an array's, and what PostgreSQL cannot read as JSON
    waits = replace(builders.job(1), history=((1, odd),))
    runs = builders.job(2, state=JobState.RUNNING, tasks=(Task(0, "h1"),))
    over = builders.job(3, state=JobState.COMPLETED)
    array = replace(builders.job(4), array=Array(waiting="2-5", completed="1"))
    store = led(url)
    store.commit(Batch(jobs=(waits, runs, over, array)), store.load().version)
    back_up_to(url, file)
    version = store.load().version
    store.close()

    same = restore_from(url, file, tmp_path / "kept", version, hold)
    assert (same.waiting, same.open) == ((), ())
    store = open_store(url)
    assert list(store.jobs()) == [waits, runs, over, array]
    store.close()

    done = restore_from(url, file, tmp_path / "kept2", version + 1, hold)
    assert (done.waiting, done.open) == ((1, 4), (2,))
    store = open_store(url)
    held = replace(array, array=Array(waiting="2-5", held="2-5", completed="1"))
    marked = replace(waits, held=True, unsure=True)
    wanted = [marked if hold else waits, replace(runs, unsure=True), over, held if hold else array]
    assert list(store.jobs()) == wanted
    store.close()


def test_what_is_no_backup_changes_nothing(make_durable: Callable[[], Database], tmp_path: Path) -> None:
    url = make_durable().url
    led(url, 1).close()
    file = tmp_path / "backup"
    with pytest.raises(UsageError, match="cannot be read"):
        restore_from(url, file, tmp_path / "kept")
    file.write_bytes(b"no such thing")
    with pytest.raises(UsageError, match="rmx backup FILE"):
        restore_from(url, file, tmp_path / "kept")
    good = tmp_path / "good"
    back_up_to(url, good)
    file.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    with pytest.raises(StoreError):
        restore_from(url, file, tmp_path / "kept")
    store = open_store(url)
    assert ids(store) == [1]
    store.close()


def journal(database: Path, names: Path) -> bytes:
    """A rollback journal that SQLite would play back, of a transaction over several databases whose list is
    in `names`: once it is played back, that file is removed (sqlite.org/fileformat.html, section 3)."""
    page_bytes, sector, magic = 4096, 512, bytes.fromhex("d9d505f920a163d7")
    first = database.read_bytes()[:page_bytes]
    checksum = sum(first[i] for i in range(page_bytes - 200, 0, -200)) & 0xFFFFFFFF
    pages = database.stat().st_size // page_bytes
    head = magic + struct.pack(">5I", 1, 0, pages, sector, page_bytes)
    record = struct.pack(">I", 1) + first + struct.pack(">I", checksum)
    name = os.fsencode(names)
    super_journal = (
        struct.pack(">I", 0x40000000 // page_bytes + 1) + name + struct.pack(">2I", len(name), sum(name))
    )
    return head.ljust(sector, b"\0") + record + super_journal + magic


def test_a_journal_beside_a_backup_removes_no_file(tmp_path: Path) -> None:
    url, file, precious = (
        f"sqlite:///{tmp_path}/state/rm.sqlite3",
        tmp_path / "b #1?mode=x%.db",
        tmp_path / "key",
    )
    (tmp_path / "state").mkdir()
    led(url, 1).close()
    back_up_to(url, file)
    precious.write_text("secret")
    beside = tmp_path / f"{file.name}-journal"
    beside.write_bytes(journal(file, precious))
    with pytest.raises(StoreError, match="A rollback journal lies beside"):
        restore_from(url, file, tmp_path / "kept")
    assert precious.read_text() == "secret"
    beside.unlink()
    assert restore_from(url, file, tmp_path / "kept").jobs == 1
    with closing(sqlite3.connect(file)) as played:  # it is one that would be played back
        beside.write_bytes(journal(file, precious))
        played.execute("SELECT count(*) FROM jobs").fetchone()
    assert not precious.exists()


def test_a_write_ahead_log_beside_a_backup_counts(tmp_path: Path) -> None:
    """As beside what was put aside, or rescued."""
    url = f"sqlite:///{tmp_path}/state/rm.sqlite3"
    (tmp_path / "state").mkdir()
    store = led(url, 1, 2)
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path}/state/rm.sqlite3{end}", f"{tmp_path}/copy{end}")
    store.close()
    assert os.path.getsize(tmp_path / "copy-wal")
    assert restore_from(url, tmp_path / "copy", tmp_path / "kept").jobs == 2


def test_a_backup_of_an_older_rm_is_brought_up_to_date_and_one_of_a_newer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, url = tmp_path / "old", f"sqlite:///{tmp_path}/rm.sqlite3"
    upgrade(f"sqlite:///{old}", MIGRATIONS, "0006")
    assert restore_from(url, old, tmp_path / "kept").schema == "0006"
    open_store(url).close()
    back_up_to(url, tmp_path / "new")
    monkeypatch.setattr(module, "head", lambda: "0006")
    with pytest.raises(StoreError, match="newer rm"):
        restore_from(url, tmp_path / "new", tmp_path / "kept")


# -- the commands


def run(tmp_path: Path, *words: str) -> Any:
    config = tmp_path / "rm.toml"
    config.write_text(f'[daemon]\nsocket = "{tmp_path}/rm.sock"\nstate_dir = "{tmp_path}/state"\n')
    return CliRunner().invoke(rmx, ["--config", str(config), *words])


def test_the_commands_back_up_restore_and_look_ahead(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    url = f"sqlite:///{state}/rm.sqlite3"
    assert "There is no database yet" in run(tmp_path, "upgrade", "--check").output
    upgrade(url, MIGRATIONS, "0007")
    told = run(tmp_path, "upgrade", "--check").output
    assert f"schema 0007, and this rm needs {head()}" in told
    assert "The upgrade will work" in told
    done = run(tmp_path, "upgrade")
    assert done.exit_code == 0
    copy = state / "rm.sqlite3.0007.backup"
    assert f"rmx restore {copy}, then install the older rm." in done.output
    assert copy.exists()
    again = run(tmp_path, "upgrade").output
    assert "as this rm needs" in again
    assert "kept in" not in again

    led(url, 1).close()
    file = tmp_path / "backup"
    assert run(tmp_path, "backup", str(file)).exit_code == 0
    (state / "rm.sqlite3").unlink()
    (state / "acknowledged").write_text("somebody 5\n")
    with claimed(f"{tmp_path}/rm.sock"):
        refused = run(tmp_path, "restore", str(file))
    assert isinstance(refused.exception, Conflict)  # a daemon runs
    done = run(tmp_path, "restore", str(file))
    assert done.exit_code == 0, done.output
    assert not (state / "acknowledged").exists()
    store = open_store(url)
    assert ids(store) == [1]
    store.close()


def test_the_copy_before_an_upgrade_leads_back(tmp_path: Path) -> None:
    """As the commands say: what waited then is held, and an older rm finds its own schema."""
    state = tmp_path / "state"
    state.mkdir()
    url = f"sqlite:///{state}/rm.sqlite3"
    upgrade(url, MIGRATIONS, f"{int(head()) - 1:04}")
    done = run(tmp_path, "upgrade", "--json")
    copy = json.loads(done.stdout)["copy"]
    led(url, 1).close()
    (state / "acknowledged").write_text("somebody 5\n")
    told = run(tmp_path, "restore", copy)
    assert told.exit_code == 0, told.output
    assert f"is kept in {state}/rm.sqlite3.before-restore." in told.output
    assert found_schema(url) == f"{int(head()) - 1:04}"


of_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights that the account lacks")


@pytest.fixture
def of_account() -> Iterator[Path]:
    """A database of an older rm's, in the state directory of an account that may enter all above it."""
    with TemporaryDirectory(dir="/tmp", prefix="rm-backup-") as folder:
        Path(folder).chmod(0o711)
        state = Path(folder, "state")
        state.mkdir()
        database = state / "rm.sqlite3"
        upgrade(f"sqlite:///{database}", MIGRATIONS, "0007")
        for path in (state, database):
            os.chown(path, ACCOUNT, ACCOUNT)
        yield database


@of_root
@pytest.mark.parametrize("command", ["backup", "upgrade"])
def test_root_follows_nothing_that_the_daemons_account_put_beside_its_database(
    of_account: Path, command: str
) -> None:
    """SQLite removes what a journal names as the one above it, with the rights of who opens the database."""
    folder = of_account.parent.parent
    precious, beside = folder / "roots", Path(f"{of_account}-journal")
    precious.write_text("secret")
    precious.chmod(0o600)
    beside.write_bytes(journal(of_account, precious))
    os.chown(beside, ACCOUNT, ACCOUNT)
    refused = run(folder, command, *([str(folder / "backup")] if command == "backup" else []))
    assert isinstance(refused.exception, StoreError)
    assert "unable to open database file" in str(refused.exception)
    assert precious.read_text() == "secret"
    assert os.geteuid() == 0


@of_root
@pytest.mark.parametrize("command", ["backup", "upgrade"])
def test_root_is_not_led_to_a_database_of_the_accounts_in_roots_directory(
    of_account: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may put files into /tmp, and so into this directory."""
    folder = of_account.parent.parent
    precious, everybodys = folder / "roots", folder / "everybodys"
    precious.write_text("secret")
    precious.chmod(0o600)
    everybodys.mkdir(mode=0o777)
    moved = shutil.copy(of_account, everybodys / "rm.sqlite3")
    beside = Path(f"{moved}-journal")
    beside.write_bytes(journal(of_account, precious))
    for path in (Path(moved), beside):
        os.chown(path, ACCOUNT, ACCOUNT)
    link = of_account.parent / "db"
    link.symlink_to(everybodys)
    os.lchown(link, ACCOUNT, ACCOUNT)
    monkeypatch.setenv("RM_DAEMON__DATABASE", f"sqlite:///{link}/rm.sqlite3")
    file = [str(folder / "after")] if command == "backup" else []
    refused = run(folder, command, *file)
    assert isinstance(refused.exception, ConfigError)
    assert "Let no link of another account lead to it" in refused.exception.hint
    assert precious.read_text() == "secret"
    assert os.geteuid() == 0


@of_root
def test_root_restores_into_no_link_of_the_daemons_account(
    of_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the new database begin, and puts a link in its place before SQLite opens it."""
    folder = of_account.parent.parent
    precious = folder / "roots"
    assert run(folder, "backup", str(folder / "before")).exit_code == 0
    precious.touch(0o600)

    def exchanged(file: Path) -> None:
        make_for_owner(file)
        file.unlink()
        file.symlink_to(precious)

    monkeypatch.setattr(module, "make_for_owner", exchanged)
    refused = run(folder, "restore", str(folder / "before"))
    assert isinstance(refused.exception, StoreError)
    assert "unable to open database file" in str(refused.exception)
    assert precious.read_bytes() == b""
    assert os.geteuid() == 0


@of_root
def test_root_makes_no_directory_for_a_restore_through_a_link_of_the_daemons_account(
    of_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = of_account.parent.parent
    assert run(folder, "backup", str(folder / "before")).exit_code == 0
    roots, link = folder / "roots", of_account.parent / "db"
    roots.mkdir()
    link.symlink_to(roots)
    os.lchown(link, ACCOUNT, ACCOUNT)
    monkeypatch.setenv("RM_DAEMON__DATABASE", f"sqlite:///{link}/new/rm.sqlite3")
    refused = run(folder, "restore", str(folder / "before"))
    assert isinstance(refused.exception, ConfigError)
    assert "Let no link of another account lead to it" in refused.exception.hint
    assert not list(roots.iterdir())
    monkeypatch.setenv("RM_DAEMON__DATABASE", f"sqlite:///{roots}/a/new/rm.sqlite3")
    assert run(folder, "restore", str(folder / "before")).exit_code == 0
    assert (roots / "a/new/rm.sqlite3").exists()


def test_root_dumps_into_no_link_of_the_daemons_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `rmx restore` keeps of PostgreSQL's is in the state directory: that account sees it begin."""
    state, precious, programs = tmp_path / "state", tmp_path / "roots", tmp_path / "bin"
    state.mkdir()
    programs.mkdir()
    precious.write_text("secret")
    swaps = f"for one in {state}/*.new; do rm $one; ln -s {precious} $one; done"
    named = "for word; do case $word in --file=*) exec >${word#--file=};; esac; done"
    (programs / "pg_dump").write_text(f"#!/bin/sh\n{swaps}\n{named}\necho dumped\n")
    (programs / "pg_dump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="Something else lies at"):
        back_up_to("postgresql:///rm", state / "kept")
    assert (precious.read_text(), precious.stat().st_nlink) == ("secret", 1)


@of_root
def test_root_writes_a_backup_through_no_link_of_another_account(of_account: Path) -> None:
    """On the way to it: root would put the file into any directory."""
    state, roots = of_account.parent, of_account.parent.parent / "roots"
    roots.mkdir()
    (state / "backups").symlink_to(roots)
    os.lchown(state / "backups", ACCOUNT, ACCOUNT)
    refused = run(state.parent, "backup", str(state / "backups" / "new"))
    assert isinstance(refused.exception, UsageError)
    assert "Let no link of another account lead to it" in refused.exception.hint
    assert not list(roots.iterdir())
    os.lchown(state / "backups", 0, 0)  # root's own link in a directory of the account, which may exchange it
    refused = run(state.parent, "backup", str(state / "backups" / "new"))
    assert isinstance(refused.exception, UsageError)
    (state.parent / "link").symlink_to(roots)
    assert run(state.parent, "backup", str(state.parent / "link" / "new")).exit_code == 0
    assert [file.name for file in roots.iterdir()] == ["new"]


@of_root
@pytest.mark.parametrize("setting", ["state_dir", "log_dir"])
def test_root_makes_no_directory_of_the_daemon_through_a_link_of_another_account(
    of_account: Path, setting: str
) -> None:
    state, roots = of_account.parent, of_account.parent.parent / "roots"
    roots.mkdir()
    (state / "there").symlink_to(roots)
    os.lchown(state / "there", ACCOUNT, ACCOUNT)
    place = state / "there" / "made"
    config = Config(daemon=DaemonConfig(log_dir=str(place)))
    ways: dict[str, Callable[[], Any]] = {
        "state_dir": lambda: make_state_dir(place),
        "log_dir": lambda: log_place(config, cast(SqlStore, SimpleNamespace(file=None))),
    }
    with pytest.raises(ConfigError, match="cannot be used"):
        ways[setting]()
    assert not list(roots.iterdir())


@of_root
def test_root_copies_a_database_into_no_link_of_the_daemons_account(
    of_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the copy begin in its directory, and puts a link in its place before SQLite opens it."""
    state, folder = of_account.parent, of_account.parent.parent
    connect, exchanged = sqlite3.connect, []

    def exchanging(database: Any, **more: Any) -> sqlite3.Connection:
        for new in state.glob("*.new"):
            new.unlink()
            new.symlink_to(folder / "roots")
            exchanged.append(new)
        return connect(database, **more)

    monkeypatch.setattr(module.sqlite3, "connect", exchanging)
    refused = run(folder, "backup", str(state / "copy"))
    assert isinstance(refused.exception, UsageError)
    assert "Something else lies at" in str(refused.exception)
    assert exchanged
    assert not (folder / "roots").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a file to another account")
def test_what_root_restores_and_upgrades_is_the_daemons_account_s(of_account: Path) -> None:
    state = of_account.parent
    folder = state.parent
    assert run(folder, "upgrade").exit_code == 0
    assert run(folder, "backup", str(folder / "backup")).exit_code == 0
    assert run(folder, "restore", str(folder / "backup")).exit_code == 0
    found = {path.name: path.stat() for path in state.iterdir()}
    assert {"rm.sqlite3", "rm.sqlite3.0007.backup", "rm.sqlite3.before-restore"} <= set(found)
    assert {(name, s.st_uid, s.st_gid) for name, s in found.items()} == {
        (name, ACCOUNT, ACCOUNT) for name in found
    }
    assert found["rm.sqlite3"].st_mode & 0o777 == 0o600
    of_account.unlink()
    assert run(folder, "upgrade").exit_code == 0  # makes a new one
    assert (of_account.stat().st_uid, of_account.stat().st_mode & 0o777) == (ACCOUNT, 0o600)


def test_a_damaged_database_cannot_be_upgraded_and_the_check_says_so(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "rm.sqlite3").write_bytes(b"no database at all" * 1000)
    assert isinstance(run(tmp_path, "upgrade", "--check").exception, StoreError)
    shutil.rmtree(state)


@pytest.mark.parametrize("step", range(6))
def test_what_a_restore_puts_aside_is_whole_whenever_it_ends(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tmp_path / "rm.sqlite3", tmp_path / "backup"
    url = f"sqlite:///{path}"
    store = led(url, 1)
    back_up_to(url, file)
    loaded = store.load()
    store.commit(Batch(jobs=(builders.job(2),)), loaded.version)
    crash = tmp_path / "crash"
    crash.mkdir()
    for end in ("", "-wal"):  # as a daemon leaves them that is killed: job 2 is in the log alone
        shutil.copy(f"{path}{end}", crash / f"rm.sqlite3{end}")
    store.close()

    class Killed(BaseException):
        pass

    left = [step]

    def killed_at(name: str) -> None:
        real = getattr(os, name)

        def do(*arguments: Any, **more: Any) -> Any:
            if "rm.sqlite3" in str(arguments[0]) and ".restoring" not in str(arguments[0]):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            return real(*arguments, **more)

        monkeypatch.setattr(os, name, do)

    for name in ("link", "rename", "unlink"):
        killed_at(name)
    restored = False
    with suppress(Killed):
        restore_from(f"sqlite:///{crash}/rm.sqlite3", file, tmp_path / "kept")
        restored = True
    monkeypatch.undo()
    kept = crash / "rm.sqlite3.before-restore"
    old = crash / "rm.sqlite3"
    if not restored and old.exists():  # a program that opened it without its log would write to what is kept
        assert (crash / "rm.sqlite3-wal").exists()
    whole = kept if kept.exists() else old
    again = open_store(f"sqlite:///{whole}")
    assert ids(again) == [1, 2]
    again.close()
