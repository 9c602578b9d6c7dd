"""The files of an open SQLite database, watched: SQLite itself goes on writing to files that were deleted."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from rm.errors import StoreError

Identity = tuple[int, int]  # device and inode


class DatabaseFiles:
    """`check` compares the files that were opened with those that their names lead to now.

    It keeps a connection of its own open, so that the write-ahead log stays while the database is in use,
    and so that a database whose name is gone can still be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._anchor = sqlite3.connect(path, check_same_thread=False)
        try:
            self._anchor.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log, too
        except BaseException:
            self._anchor.close()
            raise
        self._opened = {file: _identity(file) for file in (path, Path(f"{path}-wal"))}
        self._rescued: Path | None = None

    def check(self, rescue: bool) -> None:
        """`rescue` saves what was acknowledged here into another file.

        Raises:
            StoreError: a file was deleted or replaced: what was written since may be lost.
        """
        for file, opened in self._opened.items():
            if opened is not None and (now := _identity(file)) != opened:
                what = "deleted" if now is None else "replaced by another"
                raise StoreError(
                    f"The file {file} of the database was {what} while the daemon used it. Nothing that was "
                    f"asked for since is acknowledged.{self._saved() if rescue else ''}",
                    f"Find out who did it. `rmx restore {self._rescued or 'A-BACKUP'}` puts it back.",
                )

    def close(self) -> None:
        self._anchor.close()

    def _saved(self) -> str:
        if self._rescued is None:
            try:
                self._rescued = self._copy()
            except (sqlite3.Error, OSError) as error:
                return f" What was acknowledged could not be saved: {error}."
        return f" All that was acknowledged is saved in {self._rescued}."

    def _copy(self) -> Path:
        taken = 1
        while (copy := self.path.with_name(f"{self.path.name}.rescued{taken if taken > 1 else ''}")).exists():
            taken += 1
        copy.touch(mode=0o600)
        try:
            with closing(sqlite3.connect(copy)) as target:
                self._anchor.backup(target)
        except BaseException:
            copy.unlink()
            raise
        return copy


def _identity(file: Path) -> Identity | None:
    with suppress(OSError):
        about = os.stat(file)
        return about.st_dev, about.st_ino
    return None
