"""Connections to the database: how they are made, what bounds their waits, and its complaints as errors.

A leader may vanish (its machine hangs, its link is cut) while its transaction holds the row that every
leader needs. So PostgreSQL is set to end such a transaction (`_HELD_MS`), to wait for no lock for long,
and, with TCP, to look whether the other side is there; this side looks, too.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url

from rm.errors import ConfigError, StoreError, StoreUnavailable, Unstorable

Value = TypeVar("Value")
BUSY_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_S = 3
PATIENT_MS = 60_000  # for a transaction in which the leader's place is not held
_HELD_MS = 2_000  # less than a lease (daemon.lease_s): by then its successor wants the row
_LOCK_MS = 2_000
_SILENT_S = 4  # a peer that says nothing for so long is gone

_POSTGRES = {
    "idle_in_transaction_session_timeout": _HELD_MS,
    "lock_timeout": _LOCK_MS,
    "statement_timeout": PATIENT_MS,
    "tcp_keepalives_idle": _SILENT_S // 2,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": _SILENT_S // 2,
    "tcp_user_timeout": 1000 * _SILENT_S,
}
_LIBPQ = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": _SILENT_S // 2,
    "keepalives_interval": 1,
    "keepalives_count": _SILENT_S // 2,
    "tcp_user_timeout": 1000 * _SILENT_S,
    "application_name": "rm",
}


def make_engine(url: str, foreign_keys: bool = True, read_only: bool = False, bounded: bool = True) -> Engine:
    """An engine for `url`; `bounded`: PostgreSQL ends what takes too long (an upgrade may).

    Raises:
        ConfigError: the URL is wrong, or its driver is not installed.
    """
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
            return _sqlite(parsed.set(drivername="sqlite+pysqlite"), foreign_keys, read_only)
        if backend == "postgresql":
            return _postgres(parsed.set(drivername="postgresql+psycopg"), bounded)
    except (sa.exc.ArgumentError, ValueError) as e:  # a port that is no number is the latter
        raise ConfigError("The database's URL cannot be read.", _URL_HINT) from e
    except ImportError as e:
        raise ConfigError(
            "The PostgreSQL driver is missing.", "Install it: pip install 'rmx[postgres]'"
        ) from e
    raise ConfigError(
        f"The database's URL names neither a SQLite file nor PostgreSQL ({backend}).", _URL_HINT
    )


def _sqlite(url: URL, foreign_keys: bool, read_only: bool) -> Engine:
    if read_only:
        file = f"file:{quote(os.path.abspath(str(url.database)))}"
        return sa.create_engine(url.set(database=file, query={"mode": "ro", "uri": "true"}))
    # mode=rw: a connection that comes after the file was deleted must not make an empty one
    file = f"file:{quote(os.path.abspath(str(url.database)))}?mode=rw"
    timeout_s = BUSY_TIMEOUT_MS / 1000
    engine = sa.create_engine(
        url, creator=lambda: sqlite3.connect(file, timeout=timeout_s, uri=True, check_same_thread=False)
    )
    sa.event.listen(engine, "connect", partial(_prepare_sqlite, foreign_keys))
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgres(url: URL, bounded: bool) -> Engine:
    own = {name: value for name, value in _LIBPQ.items() if name not in url.query}  # the URL's word counts
    engine = sa.create_engine(url, connect_args=own, pool_pre_ping=True)
    if bounded:
        sa.event.listen(engine, "connect", _prepare_postgres)
    return engine


_URL_HINT = "Write sqlite:////path/to/rm.db or postgresql://user@host/name."


def _prepare_sqlite(foreign_keys: bool, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where _begin_sqlite says so
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"foreign_keys={int(foreign_keys)}"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # a writer takes the write lock at once: a later upgrade of a read lock could only fail
    writes = connection.get_execution_options().get("rm_writes")
    raw: Any = connection.connection.dbapi_connection  # itself, as `Prepared` does
    raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN").close()


def _prepare_postgres(connection: Any, _record: object) -> None:
    connection.execute(";".join(f"SET {name} = {value}" for name, value in _POSTGRES.items()))
    connection.commit()


class Prepared:
    """A statement of every commit, compiled once, which halves what its execution costs. Its rows have the
    values of `columns` and of the statement's own parameters, which are sent as they are."""

    def __init__(self, statement: sa.UpdateBase, dialect: sa.Dialect, columns: Sequence[str] = ()) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(columns))
        self._text = str(compiled)
        order: Sequence[str] | None = getattr(compiled, "positiontup", None)
        self._values: Callable[[Mapping[str, Any]], Any] | None = None
        if order is not None:
            pick = itemgetter(*order)
            self._values = pick if len(order) > 1 else lambda row: (pick(row),)

    def __call__(self, c: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        if self._values is None:
            named = [dict(row) for row in rows]
            # one row is not sent as many are: PostgreSQL bounds the time of no pipeline
            c.exec_driver_sql(self._text, named if len(named) > 1 else named[0])
            return
        # to SQLite itself: around each statement SQLAlchemy does ten times what SQLite does
        raw: Any = c.connection.dbapi_connection
        if len(rows) > 1:
            raw.executemany(self._text, map(self._values, rows)).close()
        else:
            raw.execute(self._text, self._values(rows[0])).close()


class PreparedRow:
    """The one row that a statement without parameters finds, read in the same way."""

    def __init__(self, statement: sa.Select[Any], dialect: sa.Dialect) -> None:
        self._text = str(statement.compile(dialect=dialect))

    def __call__(self, c: Connection) -> Sequence[Any]:
        if c.dialect.name != "sqlite":
            return c.exec_driver_sql(self._text).one()
        raw: Any = c.connection.dbapi_connection
        cursor = raw.execute(self._text)
        row: Sequence[Any] | None = cursor.fetchone()
        cursor.close()
        if row is None:
            raise sa.exc.NoResultFound("No row was found when one was required")
        return row


_JOBS_OF = {  # as texts: one is made for each commit
    "sqlite": "SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
    "postgresql": "SELECT id FROM jobs WHERE id = ANY(%s)",
}


def jobs_of(c: Connection, ids: Sequence[int]) -> set[int]:
    """Which of these jobs there are, however many are asked for."""
    kind = c.dialect.name
    wanted = str(list(ids)) if kind == "sqlite" else list(ids)
    return set(c.exec_driver_sql(_JOBS_OF[kind], (wanted,)).scalars())


def be_patient(connection: Connection) -> None:
    """In this transaction the leader's place is not held: it may pause between its statements."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {PATIENT_MS}")


_UNDECODABLE = "Could not decode to UTF-8"  # SQLite's complaint about the bytes of a text, which has no code


class _Undecodable(StoreError):
    """A row holds bytes that are no text."""


_lenient = partial(str, encoding="utf-8", errors="surrogateescape")


@contextmanager
def lenient_text(connection: Connection, lenient: bool = True) -> Iterator[None]:
    """SQLite gives text that is not UTF-8 all the same, so that one row does not spoil the reading of all;
    as a rule it does not, since that is faster. PostgreSQL holds no such text."""
    raw: Any = connection.connection.dbapi_connection
    if not lenient or connection.dialect.name != "sqlite":
        yield
        return
    before, raw.text_factory = raw.text_factory, _lenient
    try:
        yield
    finally:
        raw.text_factory = before


Door = Callable[[str], AbstractContextManager[Connection]]


def around_damage(reading: Door, purpose: str, read: Callable[[Connection], Value]) -> Value:
    """What is read, also where a row holds bytes that are no text: that row then says so by itself."""
    try:
        with reading(purpose) as c:
            return read(c)
    except _Undecodable:
        pass
    with reading(purpose) as c, lenient_text(c):
        return read(c)


@contextmanager
def sentences(name: str, purpose: str) -> Iterator[None]:
    """Turns the database's complaints into StoreErrors that say what to do."""
    try:
        yield
    except (UnicodeError, OverflowError, sqlite3.DataError, sa.exc.DataError) as e:  # by the values alone
        cause = str(getattr(e, "orig", None) or e).strip().splitlines()[0].rstrip(".")
        raise Unstorable(f"The database {name} failed to {purpose}: {cause}.") from e
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as e:
        cause = str(getattr(e, "orig", None) or e).strip().splitlines()[0].rstrip(".")
        hint = next((hint for sign, hint in _HINTS if sign in cause), "")
        broken = _Undecodable if _UNDECODABLE in cause else StoreError
        kind = StoreUnavailable if _passes(e, cause, purpose) else broken
        raise kind(f"The database {name} failed to {purpose}: {cause}.", hint) from e


# SQLite's primary result codes, https://www.sqlite.org/rescode.html
# BUSY, LOCKED, IOERR (also where a quota or a full disk ends), FULL, PROTOCOL (who held a lock stood still)
_SQLITE_PASSING = {5, 6, 10, 13, 15}
# READONLY: a disk that was remounted after errors; CANTOPEN: also when the daemon has no descriptors left
_SQLITE_PASSING_LATER = {8, 14}  # not when the database is opened first
# Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES_PASSING = ("08", "40", "53", "57", "58", "25006", "25P03", "55P03")
_REFUSED = ("authentication failed", "does not exist", "pg_hba.conf")  # at a connection, without a code


def _passes(error: Exception, cause: str, purpose: str) -> bool:
    """May the same work succeed later, without a change of what is asked or configured?"""
    if isinstance(error, sa.exc.TimeoutError):  # no connection of the pool came free
        return True
    origin = getattr(error, "orig", None) or error
    if isinstance(origin, sqlite3.Error):
        code = getattr(origin, "sqlite_errorcode", 0) & 0xFF
        return code in _SQLITE_PASSING or (code in _SQLITE_PASSING_LATER and purpose != "open")
    state = getattr(origin, "sqlstate", None)
    if state:
        return str(state).startswith(_POSTGRES_PASSING)
    if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:  # lost, by whatever name
        return True
    return isinstance(error, sa.exc.OperationalError) and not any(sign in cause for sign in _REFUSED)


_HINTS = (
    ("readonly", "Let the daemon's user write the file and its directory."),
    ("unable to open", "Let the daemon's user write the file and its directory."),
    ("disk is full", "Make room on its file system; nothing that was acknowledged is lost."),
    ("disk I/O", "Look at the kernel's log for the disk; nothing that was acknowledged is lost."),
    ("not a database", "Restore it from a backup, or name another file."),
    ("malformed", "Restore it from a backup (rm makes one before each upgrade)."),
    ("locked", "Another process holds it: is a second daemon or a backup running?"),
    ("connection", "Is PostgreSQL running, and is the URL correct?"),
)
