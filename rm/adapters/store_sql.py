"""The store on SQLite or PostgreSQL, through SQLAlchemy Core.

Durability: SQLite runs in WAL mode with synchronous=FULL and PostgreSQL with its default
synchronous_commit=on, so a commit returns after its log record is on disk.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url

from rm.adapters import records, schema
from rm.adapters.history_sql import SqlHistory
from rm.adapters.migrate import MIGRATIONS, VERSION_TABLE, back_up, create_privately, head, upgrade
from rm.core.job import Job, JobState
from rm.core.store import Batch, Entry, Loaded
from rm.errors import ConfigError, StaleLeader, StoreError

BUSY_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_S = 5
UNFINISHED = tuple(s.value for s in JobState if not s.final)
PRUNE_CHUNK = 5_000  # journal entries that are forgotten in one transaction
PRUNE_PAUSE_S = 0.005
IN_CHUNK = 500  # values in one IN (...): SQLite's builds limit the number of parameters


class SqlStore:
    """A `Store` in a database; made by `open_store`, which brings the schema up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.url.render_as_string(hide_password=True)
        self._writing = threading.RLock()
        self._epoch: int | None = None
        self._upsert = schema.upserts(engine.dialect.name)
        self.history = SqlHistory(engine.dialect.name, self._reading, self._changing)

    # ── the leader's side ──

    def load(self, ended_after_us: int | None = None) -> Loaded:
        wanted = sa.or_(schema.jobs.c.state.in_(UNFINISHED))
        if ended_after_us is not None:
            wanted = sa.or_(wanted, schema.jobs.c.ended_us >= ended_after_us)
        with self._reading("load") as c:
            cluster = c.execute(sa.select(schema.cluster)).mappings().one()
            jobs = [records.job(r) for r in c.execute(schema.JOBS.where(wanted).order_by(schema.jobs.c.id))]
            loaded = Loaded(
                version=cluster["version"],
                next_job_id=cluster["next_job_id"],
                next_action_id=cluster["next_action_id"],
                jobs=tuple(jobs),
                hosts=tuple(records.host(r) for r in c.execute(schema.ordered(schema.hosts))),
                zones=tuple(records.zone(r) for r in c.execute(schema.ordered(schema.zones))),
                actions=tuple(records.action(r) for r in c.execute(schema.ordered(schema.actions))),
                measurements=tuple(
                    sorted(
                        (records.measured(r) for r in c.execute(sa.select(schema.measurements))),
                        key=lambda m: (m.source, m.destination),
                    )
                ),
                documents=tuple(
                    sorted((r.name, records.document(r)) for r in c.execute(sa.select(schema.documents)))
                ),
            )
        return loaded

    def commit(self, batch: Batch, expected_version: int) -> int:
        with self._writing, self._transaction("commit a batch") as c:
            cluster = c.execute(schema.CLUSTER_FOR_UPDATE).mappings().one()
            if self._epoch is None or cluster["epoch"] != self._epoch:
                raise StaleLeader("This daemon does not lead the cluster (any more).")
            if cluster["version"] != expected_version:
                raise StaleLeader(f"The store is at version {cluster['version']}, not at {expected_version}.")
            next_job, next_action = cluster["next_job_id"], cluster["next_action_id"]
            _refuse_used_ids(c, batch, next_job, next_action)
            self._write(c, batch, next_job)
            c.execute(
                schema.UPDATE_CLUSTER,
                {
                    "b_expected": expected_version,
                    "b_epoch": self._epoch,
                    "version": expected_version + 1,
                    "next_job_id": max(next_job, *(j.id + 1 for j in batch.jobs), 1),
                    "next_action_id": max(next_action, *(a.id + 1 for a in batch.actions), 1),
                },
            )
        return expected_version + 1

    def _write(self, c: Connection, batch: Batch, next_job: int) -> None:
        def put(statement: sa.Executable, rows: list[dict[str, Any]]) -> None:
            if rows:
                c.execute(statement, rows)

        put(schema.DELETE_HOST, [{"b_name": n} for n in batch.removed_hosts])
        put(schema.DELETE_MEASUREMENTS, [{"b_name": n} for n in batch.removed_hosts])
        put(schema.DELETE_ZONE, [{"b_name": n} for n in batch.removed_zones])
        put(self._upsert["job_specs"], [records.spec_row(j) for j in batch.jobs if j.id >= next_job])
        put(self._upsert["jobs"], [records.job_row(j) for j in batch.jobs])
        put(self._upsert["hosts"], [records.named_row(h.name, h, "Host") for h in batch.hosts])
        put(self._upsert["zones"], [records.named_row(z.name, z, "Zone") for z in batch.zones])
        put(self._upsert["measurements"], [records.measured_row(m) for m in batch.measurements])
        put(sa.insert(schema.actions), [records.action_row(a) for a in batch.actions])
        put(schema.DELETE_ACTION, [{"b_id": id} for id in batch.finished_actions])
        # one row after the other: a name may appear twice, and the last one counts
        for name, body in batch.documents:
            if body is None:
                c.execute(schema.DELETE_DOCUMENT, {"b_name": name})
            else:
                c.execute(self._upsert["documents"], records.named_row(name, body, "Document"))
        put(sa.insert(schema.journal), [records.entry_row(e) for e in batch.events])

    def acquire_lease(self, holder: str, now_us: int, ttl_us: int) -> int | None:
        with self._writing, self._transaction("take the lease") as c:
            cluster = c.execute(schema.CLUSTER_FOR_UPDATE).mappings().one()
            if cluster["holder"] not in ("", holder) and cluster["lease_expires_us"] > now_us:
                return None
            epoch: int = cluster["epoch"] + 1
            c.execute(
                sa.update(schema.cluster),
                {"holder": holder, "lease_expires_us": now_us + ttl_us, "epoch": epoch},
            )
        self._epoch = epoch
        return epoch

    def renew_lease(self, now_us: int, ttl_us: int) -> bool:
        return self._change_lease("renew the lease", lease_expires_us=now_us + ttl_us)

    def release_lease(self) -> None:
        self._change_lease("release the lease", holder="", lease_expires_us=0)
        self._epoch = None

    def _change_lease(self, purpose: str, **values: str | int) -> bool:
        """False when the lease is not (any more) this store's."""
        if self._epoch is None:
            return False
        with self._writing, self._transaction(purpose) as c:
            return bool(c.execute(schema.UPDATE_LEASE, {"b_epoch": self._epoch, **values}).rowcount)

    # ── everybody's side ──

    def jobs(
        self,
        *,
        states: Collection[JobState] | None = None,
        user: str | None = None,
        name: str | None = None,
        ended_after_us: int | None = None,
        limit: int | None = None,
        before_id: int | None = None,
    ) -> list[Job]:
        columns, query = schema.jobs.c, schema.JOBS
        if states is not None:
            query = query.where(columns.state.in_([s.value for s in states]))
        if user is not None:
            query = query.where(columns.user_name == user)
        if name is not None:
            query = query.where(columns.name == name)
        if ended_after_us is not None:
            query = query.where(columns.state.in_(UNFINISHED) | (columns.ended_us >= ended_after_us))
        if before_id is not None:
            query = query.where(columns.id < before_id)
        with self._reading("list jobs") as c:
            found = [records.job(r) for r in c.execute(query.order_by(columns.id.desc()).limit(limit))]
        found.reverse()
        return found

    def job(self, id: int) -> Job | None:
        with self._reading("read a job") as c:
            row = c.execute(schema.JOBS.where(schema.jobs.c.id == id)).one_or_none()
            return None if row is None else records.job(row)

    def journal(self, after: int = 0, limit: int = 1000) -> list[tuple[int, Entry]]:
        columns = schema.journal.c
        query = sa.select(schema.journal).where(columns.seq > after).order_by(columns.seq).limit(limit)
        with self._reading("read the journal") as c:
            return [(r.seq, records.entry(r)) for r in c.execute(query)]

    def journal_starts(self) -> list[tuple[int, int]]:
        with self._reading("read the journal") as c:
            return [(r.seq, r.at_us) for r in c.execute(schema.STARTS)]

    def prune(self, before_us: int) -> int:
        jobs, specs, actions = schema.jobs, schema.job_specs, schema.actions
        busy = sa.select(actions.c.id).where(actions.c.job == jobs.c.id).exists()
        with self._writing, self._transaction("prune") as c:
            forgotten = c.execute(
                sa.delete(jobs).where(jobs.c.state.not_in(UNFINISHED), jobs.c.ended_us < before_us, ~busy)
            ).rowcount
            c.execute(sa.delete(specs).where(~sa.select(jobs.c.id).where(jobs.c.id == specs.c.id).exists()))
        return forgotten

    def prune_journal(self, before_us: int) -> int:
        """In many short transactions: the leader's commits go on in between."""
        kept = max((seq for seq, at_us in self.journal_starts() if at_us <= before_us), default=0)
        seq, forgotten = schema.journal.c.seq, 0
        oldest = sa.select(seq).where(seq < kept).order_by(seq).limit(PRUNE_CHUNK)
        while True:
            with self._writing, self._transaction("prune the journal") as c:
                some = c.execute(sa.delete(schema.journal).where(seq.in_(oldest))).rowcount
            forgotten += some
            if some < PRUNE_CHUNK:
                return forgotten
            time.sleep(PRUNE_PAUSE_S)  # whoever waits for the lock gets it

    def check_writable(self) -> None:
        """Raises StoreError when the database can only be read."""
        with self._writing, self._transaction("be written") as c:
            c.execute(sa.update(schema.cluster).values(version=schema.cluster.c.version))

    def close(self) -> None:
        self._epoch = None
        self._engine.dispose()

    @contextmanager
    def _transaction(self, purpose: str) -> Iterator[Connection]:
        with _sentences(self.name, purpose), self._engine.connect() as c:
            c = c.execution_options(rm_writes=True)
            with c.begin():
                yield c

    @contextmanager
    def _changing(self, purpose: str) -> Iterator[Connection]:
        """A writing transaction of this store; one at a time, whichever thread asks."""
        with self._writing, self._transaction(purpose) as c:
            yield c

    @contextmanager
    def _reading(self, purpose: str) -> Iterator[Connection]:
        """A connection that sees one consistent state, however many statements it runs."""
        with _sentences(self.name, purpose), self._engine.connect() as c:
            if self._engine.dialect.name == "postgresql":
                c = c.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with c.begin():
                yield c


def _refuse_used_ids(c: Connection, batch: Batch, next_job: int, next_action: int) -> None:
    existing = [j.id for j in batch.jobs if j.id < next_job]
    for start in range(0, len(existing), IN_CHUNK):
        chunk = existing[start : start + IN_CHUNK]
        known = set(c.scalars(sa.select(schema.jobs.c.id).where(schema.jobs.c.id.in_(chunk))))
        for id in chunk:
            if id not in known:
                raise StoreError(f"Job id {id} was given out before and cannot be used again.")
    seen: set[int] = set()
    for action in batch.actions:
        if action.id < next_action or action.id in seen:
            raise StoreError(f"Action id {action.id} was given out before and cannot be used again.")
        seen.add(action.id)


def open_store(url: str, migrations: Path = MIGRATIONS) -> SqlStore:
    """Opens the database at `url`, `sqlite:////path/to/rm.db` or `postgresql://user@host/name`.

    An empty database gets its tables. An older SQLite file is copied beside itself, then
    upgraded; an older PostgreSQL database is left alone and the upgrading command told.

    Raises:
        ConfigError: the URL is wrong, or its driver is not installed.
        StoreError: the database cannot be reached, read or written, or is not one of this rm's.
    """
    engine = _engine(url)
    name = engine.url.render_as_string(hide_password=True)
    try:
        if engine.dialect.name == "sqlite":
            create_privately(Path(str(engine.url.database)))
        with _sentences(name, "open"), engine.connect() as c, c.begin():
            tables = set(sa.inspect(c).get_table_names())
            found = c.scalar(_FOUND) if VERSION_TABLE in tables else None
        _bring_up_to_date(engine.url, name, tables, found, migrations)
        store = SqlStore(engine)
        store.check_writable()
        return store
    except BaseException:
        engine.dispose()
        raise


def read_store(url: str) -> SqlStore:
    """The store at `url` for its reads alone: nothing is made, upgraded or written.

    Raises:
        ConfigError, StoreError: as `open_store`; also when the schema is not this rm's.
    """
    engine = _engine(url, read_only=True)
    name = engine.url.render_as_string(hide_password=True)
    try:
        with _sentences(name, "open"), engine.connect() as c, c.begin():
            found = c.scalar(_FOUND) if VERSION_TABLE in sa.inspect(c).get_table_names() else None
        if found != head():
            raise StoreError(
                f"The database {name} has schema {found or 'of something else'}, and this rm reads {head()}.",
                "The daemon of this rm brings a database up to date when it starts on it.",
            )
        return SqlStore(engine)
    except BaseException:
        engine.dispose()
        raise


def _bring_up_to_date(url: URL, name: str, tables: set[str], found: str | None, migrations: Path) -> None:
    wanted = head(migrations)
    if found == wanted:
        return
    if found is None and (tables := tables - {VERSION_TABLE}):
        raise StoreError(
            f"The database {name} holds tables that are not rm's ({', '.join(sorted(tables)[:3])}).",
            "Name another database, or an empty one.",
        )
    if found is not None and found > wanted:
        raise StoreError(
            f"The database {name} was written by a newer rm (schema {found}; this rm knows {wanted}).",
            "Upgrade rm, or restore the copy that was made before the upgrade.",
        )
    if found is not None and url.get_backend_name() == "postgresql":
        hidden = " (with the password for ***)" if url.password else ""
        raise StoreError(
            f"The database {name} has schema {found}, and this rm needs {wanted}.",
            f"Back it up (pg_dump), then run{hidden}: {sys.executable} -m rm.adapters.migrate '{name}'",
        )
    if found is not None:
        with _sentences(name, "copy before its upgrade"):
            back_up(Path(str(url.database)), found)
    upgrade(url.render_as_string(hide_password=False), migrations)


@contextmanager
def migrating(url: str) -> Iterator[Connection]:
    """One writing transaction for `migrations/env.py`: all revisions or none, one migrator at once."""
    # SQLite changes a table by making it anew: its keys are checked at the end instead
    engine = _engine(url, foreign_keys=False)
    name = engine.url.render_as_string(hide_password=True)
    try:
        with _sentences(name, "upgrade"), engine.connect() as c:
            c = c.execution_options(rm_writes=True)
            with c.begin():
                if engine.dialect.name == "postgresql":
                    c.execute(sa.text("SELECT pg_advisory_xact_lock(7223471)"))
                yield c
                if engine.dialect.name == "sqlite" and (lost := c.exec_driver_sql(_KEY_CHECK).first()):
                    raise StoreError(f"The upgrade of {name} would lose rows of {lost[2]}; it was undone.")
    finally:
        engine.dispose()


def _engine(url: str, foreign_keys: bool = True, read_only: bool = False) -> Engine:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
            parsed = parsed.set(drivername="sqlite+pysqlite")
            if read_only:
                file = f"file:{quote(os.path.abspath(str(parsed.database)))}"
                return sa.create_engine(parsed.set(database=file, query={"mode": "ro", "uri": "true"}))
            engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
            sa.event.listen(engine, "connect", partial(_prepare_sqlite, foreign_keys))
            sa.event.listen(engine, "begin", _begin_sqlite)
            return engine
        if backend == "postgresql":
            return sa.create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "rm"},
                pool_pre_ping=True,
            )
    except sa.exc.ArgumentError as e:
        raise ConfigError("The database's URL cannot be read.", _URL_HINT) from e
    except ImportError as e:
        raise ConfigError(
            "The PostgreSQL driver is missing.", "Install it: pip install 'rmx[postgres]'"
        ) from e
    raise ConfigError(
        f"The database's URL names neither a SQLite file nor PostgreSQL ({backend}).", _URL_HINT
    )


_FOUND = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")
_KEY_CHECK = "PRAGMA foreign_key_check"
_URL_HINT = "Write sqlite:////path/to/rm.db or postgresql://user@host/name."


def _prepare_sqlite(foreign_keys: bool, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where _begin_sqlite says so
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"foreign_keys={int(foreign_keys)}"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # a writer takes the write lock at once: a later upgrade of a read lock could only fail
    writes = connection.get_execution_options().get("rm_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _sentences(name: str, purpose: str) -> Iterator[None]:
    """Turns the database's complaints into StoreErrors that say what to do."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as e:
        cause = str(getattr(e, "orig", None) or e).strip().splitlines()[0]
        hint = next((hint for sign, hint in _HINTS if sign in cause), "")
        raise StoreError(f"The database {name} failed to {purpose}: {cause}.", hint) from e
    except (UnicodeError, OverflowError) as e:
        raise StoreError(f"The database {name} failed to {purpose}: {e}.") from e


_HINTS = (
    ("readonly", "Let the daemon's user write the file and its directory."),
    ("unable to open", "Let the daemon's user write the file and its directory."),
    ("disk is full", "Make room on its file system; nothing that was acknowledged is lost."),
    ("disk I/O", "Look at the kernel's log for the disk; nothing that was acknowledged is lost."),
    ("not a database", "Restore it from a backup, or name another file."),
    ("malformed", "Restore it from a backup (rm makes one before each upgrade)."),
    ("locked", "Another process holds it: is a second daemon or a backup running?"),
    ("connection", "Is PostgreSQL running, and does the URL name it rightly?"),
)
