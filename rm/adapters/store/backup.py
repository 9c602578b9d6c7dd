"""Backups of the database, made while the daemon works, and put back while it does not.

SQLite: a copy by its online backup interface, https://www.sqlite.org/backup.html. PostgreSQL: an archive of
`pg_dump --format=custom`, put back in one transaction.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from rm.adapters.owned_file import as_owner_of, opened_directory
from rm.adapters.store import schema
from rm.adapters.store.database import make_engine, sentences
from rm.adapters.store.migrate import VERSION_TABLE, head, make_for_owner
from rm.adapters.store.unsure_jobs import EVERYTHING, marked, marks
from rm.core.store import Lease
from rm.errors import ConfigError, Conflict, StoreError, UsageError

# Ids that were given out after the backup are not given out again; hosts may remember their jobs.
IDS_LEFT_OUT = 10_000
# The restored database counts as newer than all that was acknowledged before it.
VERSIONS_LEFT_OUT = 1 << 32
_SQLITE, _POSTGRES = b"SQLite format 3\0", b"PGDMP"
_SETTLE = (
    f"UPDATE cluster SET holder = '', lease_expires_us = 0, version = version + {VERSIONS_LEFT_OUT}, "
    f"next_job_id = next_job_id + {IDS_LEFT_OUT}"
)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back, and where the database that was there before is kept (None: there was none). If jobs
    may have run since the backup was made, `waiting` are those that had not started by then, and `open` those
    that ran."""

    schema: str
    jobs: int
    before: Path | None
    waiting: tuple[int, ...] = ()
    open: tuple[int, ...] = ()


def back_up_to(url: str, file: Path) -> int:
    """Write a consistent copy of the database to `file`, which must not exist; its size in bytes.

    Raises:
        UsageError: the file exists or cannot be written.
        StoreError, ConfigError: the database cannot be read, or is of no known kind.
    """
    parsed = _parsed(url)
    with _new_file(file) as opened:
        if parsed.get_backend_name() == "sqlite":
            # who owns the directory of `file` may put links there, which SQLite follows
            with TemporaryDirectory(prefix="rmx-", dir=None if os.geteuid() == 0 else file.parent) as own:
                _copy_sqlite(Path(str(parsed.database)), Path(own, "copy"), opened)
        else:
            _postgres("pg_dump", ["--format=custom", "--no-owner"], parsed, into=opened)
        size_bytes = os.fstat(opened).st_size
    return size_bytes


def restore_from(
    url: str, file: Path, kept: Path, acknowledged: int = EVERYTHING, hold: bool = True
) -> Restored:
    """Put the backup in the database's place; no daemon may run. What is there now is kept, PostgreSQL's in
    `kept`. `acknowledged` is the last version that was; a backup that lacks some of that has jobs that may
    have run meanwhile: with `hold` those that wait in it are held.

    Raises:
        UsageError: `file` is not a backup of this kind of database.
        StoreError: it is damaged or of a newer rm, or the database refuses; nothing was changed.
    """
    parsed = _parsed(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    try:
        with open(file, "rb") as opened:
            begin = opened.read(16)
    except OSError as error:
        raise UsageError(f"The backup {file} cannot be read: {error.strerror}.") from None
    if not begin.startswith(_SQLITE if sqlite else _POSTGRES):
        kind = "a database of SQLite" if sqlite else "an archive of PostgreSQL's pg_dump"
        raise UsageError(f"{file} is not {kind}, as daemon.database needs.", "`rmx backup FILE` makes one.")
    return (
        _restore_sqlite(Path(str(parsed.database)), file, acknowledged, hold)
        if sqlite
        else _restore_postgres(parsed, file, kept, acknowledged, hold)
    )


def is_sqlite(url: str) -> bool:
    return _parsed(url).get_backend_name() == "sqlite"


def home_of(url: str) -> Path | None:
    """The directory of a database of SQLite; None where there is none."""
    home = Path(str(_parsed(url).database)).parent if is_sqlite(url) else None
    return home if home is not None and home.is_dir() else None


def found_schema(url: str) -> str:
    """The schema of the database; "" when there is none, or an empty one."""
    if is_sqlite(url) and not Path(str(_parsed(url).database)).exists():
        return ""
    engine = make_engine(url, read_only=True)
    try:
        with sentences(engine.url.render_as_string(hide_password=True), "open"), engine.connect() as c:
            if VERSION_TABLE not in sa.inspect(c).get_table_names():
                return ""
            return str(c.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")) or "")
    finally:
        engine.dispose()


def stored_lease(url: str) -> Lease | None:
    """Who leads; None where there is no such database, or none that can be read."""
    its = schema.cluster.c
    engine = make_engine(url, read_only=True)
    try:
        with engine.connect() as c:
            query = sa.select(its.holder, its.epoch, its.lease_expires_us, its.lease_us, its.version)
            row = c.execute(query).one_or_none()
            return None if row is None else Lease(*row)
    except sa.exc.SQLAlchemyError:
        return None
    finally:
        engine.dispose()


def _parsed(url: str) -> URL:
    parsed = make_url(url)
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"daemon.database names neither SQLite nor PostgreSQL: {parsed.get_backend_name()}."
        )
    return parsed


@contextmanager
def _new_file(file: Path) -> Iterator[int]:
    """A file beside it, for its owner only, which takes its name when it is complete and on the disk. Its
    descriptor: where the directory is another account's, a link may take the file's place at any time."""
    try:
        with opened_directory(file.parent) as home, _aside(file, home) as (aside, opened):
            yield opened
            os.fsync(opened)
            # unlike a rename it replaces nothing; newer Pythons would follow what was put in its place
            os.link(aside, file.name, src_dir_fd=home, dst_dir_fd=home, follow_symlinks=False)
            written = os.stat(file.name, dir_fd=home, follow_symlinks=False)
            if not os.path.samestat(written, os.fstat(opened)):
                raise UsageError(f"Something else lies at {file} than the backup that was written.")
            _sync(".", home)
    except OSError as error:
        hint = "Let no link of another account lead to it." if error.errno == errno.ELOOP else ""
        raise UsageError(f"The backup {file} cannot be written: {error.strerror}.", hint) from None


@contextmanager
def _aside(file: Path, home: int) -> Iterator[tuple[str, int]]:
    """The name and the descriptor of a new file in `home`, which loses that name at the end."""
    aside = f"{file.name}.{os.getpid()}.new"
    try:
        os.stat(file.name, dir_fd=home, follow_symlinks=False)
    except FileNotFoundError:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(aside, flags, 0o600, dir_fd=home), "wb") as opened:
            try:
                yield aside, opened.fileno()
            finally:
                with suppress(OSError):
                    os.unlink(aside, dir_fd=home)
        return
    raise UsageError(f"{file} exists already.", "Name another file.")


def _sync(folder: Path | str, home: int | None = None) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=home)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- SQLite


def _copy_sqlite(source: Path, target: Path, into: int) -> None:
    """By way of `target`, in a directory of this account's only: SQLite knows files by names."""
    name = f"sqlite:///{source}"
    if not source.exists():
        raise StoreError(f"There is no database {source}.", "See daemon.database, and be the daemon's user.")
    with sentences(name, "be backed up"), closing(sqlite3.connect(target)) as new:
        new.execute("PRAGMA journal_mode=OFF")  # a journal would be made with the rights of the account below
        # who owns the database may have put links and journals there, which SQLite follows
        with as_owner_of(source.parent), closing(_opened(source, "rw")) as old:
            old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")  # the copy is one file
    with open(target, "rb") as copied, open(into, "wb", closefd=False) as written:
        shutil.copyfileobj(copied, written)


def _opened(file: Path, mode: str) -> sqlite3.Connection:
    """`mode` "ro": a write-ahead log beside it counts, and a rollback journal is refused. That one
    names files that SQLite would remove, and whoever has kept a backup may have put it there."""
    return sqlite3.connect(f"file:{quote(str(file))}?mode={mode}", uri=True)


def _restore_sqlite(path: Path, file: Path, acknowledged: int, hold: bool) -> Restored:
    if os.path.lexists(f"{file}-journal"):  # opening it for reading only would refuse it, with other words
        raise StoreError(
            f"A rollback journal lies beside the backup: {file}-journal. `rmx backup` leaves none.",
            "Restore a copy of the backup alone, if you trust it.",
        )
    with sentences(f"sqlite:///{file}", "be restored"), closing(_opened(file, "ro")) as old:
        old.execute("SELECT count(*) FROM sqlite_master").fetchone()  # while it may be read
        with as_owner_of(path.parent, makes=True):
            return _put_in_place(path, file, old, acknowledged, hold)


def _put_in_place(path: Path, file: Path, old: sqlite3.Connection, last: int, hold: bool) -> Restored:
    """`old` is the backup `file`, `last` the last version that was acknowledged."""
    aside = path.with_name(f"{path.name}.restoring")
    aside.unlink(missing_ok=True)
    make_for_owner(aside)
    try:
        with closing(sqlite3.connect(aside)) as copy:
            old.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # the copy is one file
            (sound,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise StoreError(f"The backup {file} is damaged: {sound}.", "Take another one.")
            found = _known(str(copy.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0]), file)
            unsure = copy.execute(marked(last)).fetchall()
            for statement in (*marks("sqlite", last, hold), _SETTLE):
                copy.execute(statement)
            copy.commit()
            (jobs,) = copy.execute("SELECT count(*) FROM jobs").fetchone()
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        before = _put_aside(path)
        os.rename(aside, path)
        _sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)
    return Restored(found, int(jobs), before, *_sorted_out(unsure))


def _sorted_out(unsure: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of those that waited, and of those that ran."""
    known = list(unsure)
    return tuple(job for job, waits in known if waits), tuple(job for job, waits in known if not waits)


def _put_aside(path: Path) -> Path | None:
    """The files of the database under another name, so that they can still be opened.

    They are there whole before the first of them leaves its place. The name of the database itself comes last
    there, and is the first to go: whenever this ends, nothing that lacks its write-ahead log passes for all
    of it, and nobody opens it so by its old name.
    """
    names = (path.with_name(f"{path.name}.before-restore{n if n > 1 else ''}") for n in count(1))
    kept = next(k for k in names if not any(os.path.lexists(f"{k}{end}") for end in ("", "-wal")))
    for end in ("-wal", ""):
        with suppress(FileNotFoundError):
            os.link(f"{path}{end}", f"{kept}{end}", follow_symlinks=False)
    _sync(path.parent)
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")
    return kept if kept.exists() else None


def _known(found: str, file: Path) -> str:
    if found > head():
        raise StoreError(
            f"The backup {file} was made by a newer rm (schema {found}; this rm knows {head()}).",
            "Restore it with that rm, or take an older backup.",
        )
    return found


# -- PostgreSQL


def _restore_postgres(url: URL, file: Path, kept: Path, acknowledged: int, hold: bool) -> Restored:
    script = _postgres("pg_restore", ["--no-owner", "--file=-", str(file)])
    before_it = f"\nCOPY public.{VERSION_TABLE} (version_num) FROM stdin;\n"
    _, _, rest = script.partition(before_it)
    found = _known(rest.partition("\n")[0].strip(), file)
    if not found:
        raise StoreError(f"The backup {file} holds no database of rm.", "Take another one.")
    before = kept if _tables(url) else None
    if before is not None:
        back_up_to(url.render_as_string(hide_password=False), before)
    names = ", ".join([*(table.name for table in schema.metadata.sorted_tables), VERSION_TABLE])
    # the script empties the search path
    settling = ";\n".join(("SET search_path = public", *marks("postgresql", acknowledged, hold), _SETTLE))
    whole = f"DROP TABLE IF EXISTS {names} CASCADE;\n{script}\n{settling};\n"
    _postgres("psql", ["--set=ON_ERROR_STOP=1", "--single-transaction", "--quiet", "--no-psqlrc"], url, whole)
    rows = ["--no-psqlrc", "--tuples-only", "--no-align", "--field-separator= "]
    jobs = _postgres("psql", [*rows, "--command=SELECT count(*) FROM jobs"], url)
    listed = _postgres("psql", [*rows, f"--command={marked(acknowledged + VERSIONS_LEFT_OUT)}"], url)
    unsure = [(int(job), int(waits)) for job, waits in map(str.split, listed.splitlines())]
    return Restored(found, int(jobs), before, *_sorted_out(unsure))


def _tables(url: URL) -> bool:
    """Does the database hold tables of rm?"""
    query = f"--command=SELECT to_regclass('{VERSION_TABLE}') IS NOT NULL"
    return _postgres("psql", ["--no-psqlrc", "--tuples-only", "--no-align", query], url).strip() == "t"


def _postgres(
    program: str, options: list[str], url: URL | None = None, text: str = "", into: int = subprocess.PIPE
) -> str:
    """What one of PostgreSQL's programs wrote; "" where it wrote that `into` a descriptor. The password is in
    its environment: all see arguments."""
    environment = dict(os.environ)
    if url is not None:
        if url.password:
            environment["PGPASSWORD"] = str(url.password)
        plain = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
        start, mark, query = plain.partition("?")
        # for libpq a plus sign of the query is one, and no space (one that is meant is %2B here)
        options = [*options, "--dbname=" + start + mark + query.replace("+", "%20")]
    try:
        done = subprocess.run(
            [program, *options],
            input=text,
            env=environment,
            stdout=into,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise Conflict(
            f"The program {program} is not installed.",
            "Install PostgreSQL's client programs (postgresql-client).",
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1].rstrip(".")
        raise StoreError(f"{program} failed: {last}. Nothing was changed.")
    return done.stdout or ""
