"""Logs as files of a directory: `<job>.<attempt>/<rank>.<stream>`.

A log counts as kept when its bytes, its name and its folder's name are on the disk. The directory itself is
synced once for all the logs that wait for it at a time.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rm.core.model.logs import LogName


class Disk:
    """The calls of the file system on which durability depends."""

    def sync(self, path: Path) -> None:
        """The file's bytes, or the directory's names, are on the disk on return."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, old: Path, new: Path) -> None:
        old.replace(new)


class LogDirectory:
    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.name = f"the directory {root}"
        self._root = root
        self._disk = disk or Disk()
        self._sync_root = Together(lambda: self._disk.sync(root))
        self._own = secrets.token_hex(4)  # a daemon that was deposed must not write into ours

    def coming(self, log: LogName) -> Path:
        path = log_path(self._root, log)
        return path.with_name(f"{path.name}.{self._own}.part")

    def keep(self, logs: Sequence[LogName]) -> None:
        folders: dict[Path, set[str]] = {}
        for log in logs:
            path, coming = log_path(self._root, log), self.coming(log)
            self._disk.sync(coming)
            self._disk.replace(coming, path)
            folders.setdefault(path.parent, set()).add(path.name)
        for folder, kept in folders.items():
            for name in os.listdir(folder):
                if name.endswith(".part") and name.rsplit(".", 2)[0] in kept:
                    (folder / name).unlink(missing_ok=True)  # left by a daemon that ended meanwhile
            self._disk.sync(folder)
        if folders:
            self._sync_root()

    def size(self, log: LogName) -> int | None:
        try:
            return log_path(self._root, log).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, log: LogName, offset: int, limit: int) -> bytes:
        try:
            with log_path(self._root, log).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def open(self, log: LogName) -> int:
        return os.open(log_path(self._root, log), os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, known: Callable[[int], bool]) -> None:
        forget_folders(self._root, known)


class Together:
    """Calls of many threads as few: each returns after a call of `work` that began after its own began."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._begun = self._done = 0

    def __call__(self) -> None:
        with self._changed:
            wanted = self._begun + 1
            while self._done < wanted:
                if self._begun > self._done:  # somebody works
                    self._changed.wait()
                    continue
                self._begun += 1
                self._changed.release()
                try:
                    self._work()
                except BaseException:
                    self._changed.acquire()
                    self._begun -= 1
                    self._changed.notify_all()
                    raise
                self._changed.acquire()
                self._done = self._begun
                self._changed.notify_all()


def forget_folders(root: Path, known: Callable[[int], bool]) -> None:
    """Remove the folders of jobs that are not known."""
    with suppress(FileNotFoundError):
        for folder in root.iterdir():
            job = folder.name.partition(".")[0]
            if job.isdecimal() and not known(int(job)):
                shutil.rmtree(folder, ignore_errors=True)


def log_path(root: Path, log: LogName) -> Path:
    """Where a log lies that is kept."""
    return root / f"{log.job}.{log.attempt}" / f"{log.rank}.{log.stream}"
