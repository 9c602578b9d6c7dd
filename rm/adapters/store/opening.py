"""A database is opened: a new one gets its tables, an older one is upgraded or refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from rm.adapters.store import schema
from rm.adapters.store.database import make_engine, sentences
from rm.adapters.store.database_files import DatabaseFiles
from rm.adapters.store.migrate import MIGRATIONS, VERSION_TABLE, back_up, create_privately, head, upgrade
from rm.adapters.store.sql import SqlStore
from rm.errors import StoreError

_FOUND = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")
_KEY_CHECK = "PRAGMA foreign_key_check"


def open_store(
    url: str, migrations: Path = MIGRATIONS, copied: Callable[[Path], None] = lambda copy: None
) -> SqlStore:
    """Opens the database at `url`, `sqlite:////path/to/rm.db` or `postgresql://user@host/name`.

    An empty database gets its tables. An older SQLite file is copied beside itself (`copied` gets the path of
    the copy), then upgraded; an older PostgreSQL database is left alone and the error names the upgrading
    command.

    Raises:
        ConfigError: the URL is wrong, or its driver is not installed.
        StoreError: the database cannot be reached, read or written, or is not one of this rm's.
    """
    engine = make_engine(url)
    name = engine.url.render_as_string(hide_password=True)
    files: DatabaseFiles | None = None
    try:
        if engine.dialect.name == "sqlite":
            create_privately(Path(str(engine.url.database)))
        with sentences(name, "open"), engine.connect() as c, c.begin():
            tables = set(sa.inspect(c).get_table_names())
            found = c.scalar(_FOUND) if VERSION_TABLE in tables else None
        _bring_up_to_date(engine.url, name, tables, found, migrations, copied)
        if engine.dialect.name == "sqlite":
            with sentences(name, "open"):
                files = DatabaseFiles(Path(str(engine.url.database)))
        store = SqlStore(engine, files)
        store.check_writable()
        return store
    except BaseException:
        engine.dispose()
        if files is not None:
            files.close()
        raise


def read_store(url: str) -> SqlStore:
    """The store at `url` for its reads alone: nothing is made, upgraded or written.

    Raises:
        ConfigError, StoreError: as `open_store`; also when the schema is not this rm's.
    """
    engine = make_engine(url, read_only=True)
    name = engine.url.render_as_string(hide_password=True)
    try:
        with sentences(name, "open"), engine.connect() as c, c.begin():
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


def _bring_up_to_date(
    url: URL,
    name: str,
    tables: set[str],
    found: str | None,
    migrations: Path,
    copied: Callable[[Path], None],
) -> None:
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
        raise StoreError(
            f"The database {name} has schema {found}, and this rm needs {wanted}.",
            "Back it up (rmx backup FILE), then run: rmx upgrade (--check only shows what it would do)",
        )
    whole = url.render_as_string(hide_password=False)
    if found is None and migrations == MIGRATIONS:
        create(whole)
        return
    if found is not None:
        with sentences(name, "copy before its upgrade"):
            copied(back_up(Path(str(url.database)), found))
    upgrade(whole, migrations)


def create(url: str) -> None:
    """The tables of an empty database, as all revisions make them one after the other, which takes a tenth of
    the time of a daemon's first start. Does nothing where another daemon has done so meanwhile."""
    with migrating(url) as c:
        if VERSION_TABLE in sa.inspect(c).get_table_names():
            return
        schema.tables_of(c.dialect.name).create_all(c)
        c.execute(sa.insert(schema.cluster), schema.first_cluster(secrets.token_hex(4)))
        # as Alembic makes it
        versions = sa.Table(
            VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), nullable=False),
            sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
        )  # fmt: skip
        versions.create(c)
        c.execute(sa.insert(versions), {"version_num": head()})


@contextmanager
def migrating(url: str) -> Iterator[Connection]:
    """One writing transaction for `migrations/env.py`: all revisions or none, one migrator at once."""
    # SQLite changes a table by making it anew: its keys are checked at the end instead
    engine = make_engine(url, foreign_keys=False, bounded=False)
    name = engine.url.render_as_string(hide_password=True)
    if engine.dialect.name == "sqlite":
        create_privately(Path(str(engine.url.database)))
    try:
        with sentences(name, "upgrade"), engine.connect() as c:
            c = c.execution_options(rm_writes=True)
            with c.begin():
                if engine.dialect.name == "postgresql":
                    c.execute(sa.text("SELECT pg_advisory_xact_lock(7223471)"))
                yield c
                if engine.dialect.name == "sqlite" and (lost := c.exec_driver_sql(_KEY_CHECK).first()):
                    raise StoreError(f"The upgrade of {name} would lose rows of {lost[2]}; it was undone.")
    finally:
        engine.dispose()
