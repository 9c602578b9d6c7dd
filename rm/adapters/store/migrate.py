"""Brings a database to the schema that this rm knows. `python -m rm.adapters.store.migrate URL`.

Revisions are numbered and their history is linear, so that "older" and "newer" are a comparison.
`migrations/` lies beside this file: a link in a checkout, a folder in an installed package.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

from rm.errors import RmError, StoreError

MIGRATIONS = Path(__file__).parents[1] / "migrations"
VERSION_TABLE = "rm_schema"

_one_at_a_time = threading.Lock()  # Alembic keeps its context in module globals


def head(migrations: Path = MIGRATIONS) -> str:
    """The newest revision in the folder, such as "0001"."""
    return max(p.name[1:5] for p in (migrations / "versions").glob("r[0-9][0-9][0-9][0-9]_*.py"))


def upgrade(url: str, migrations: Path = MIGRATIONS, revision: str = "head") -> None:
    """Runs every revision up to `revision` that the database at `url` lacks, in one transaction.

    It makes no backup; `rm.adapters.store.opening.open_store` does before it calls this.

    Raises:
        StoreError: the database refuses, or cannot be reached; nothing was changed.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["url"] = url
    with _one_at_a_time:
        command.upgrade(config, revision)


def make_for_owner(file: Path) -> None:
    """A new file that only the owner of its directory may read: what root restores for the daemon's account,
    that account must be able to open. Raises FileExistsError."""
    made = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.geteuid() == 0:
            owner = file.parent.stat()
            os.fchown(made, owner.st_uid, owner.st_gid)
    finally:
        os.close(made)


def create_privately(file: Path) -> None:
    """Makes the SQLite file if need be: it holds all users' scripts, so nobody else may read it.

    A file that is there is not opened: closing it would end the locks (POSIX's, of the whole process) that
    SQLite's connections to it hold. Then any other process that closes the database deletes its log.
    """
    try:
        with suppress(FileExistsError):
            make_for_owner(file)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(file, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
        raise StoreError(
            f"The database file {file} cannot be written: {e.strerror}.",
            "Create its directory, or let the daemon's user write there.",
        ) from e


def back_up(file: Path, revision: str) -> Path:
    """Copies a SQLite database beside itself, as `<name>.<revision>.backup` (or `.backup2`, …).

    The copy is consistent even while the database is in use.
    """
    taken = 1
    while (copy := file.with_name(f"{file.name}.{revision}.backup{taken if taken > 1 else ''}")).exists():
        taken += 1
    make_for_owner(copy)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m rm.adapters.store.migrate URL", file=sys.stderr)
        return 2
    try:
        upgrade(sys.argv[1])
    except RmError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    print(f"The database is at schema {head()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
