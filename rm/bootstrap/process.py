"""The daemon's process: its limits, its files, where logs are kept."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path

from rm.adapters.owned_file import opened_directory
from rm.adapters.store.log_directory import LogDirectory
from rm.adapters.store.sql import SqlStore
from rm.config import Config
from rm.core.model.logs import LogPlace
from rm.errors import ConfigError

DESCRIPTORS = 65_536


def raise_descriptors() -> None:
    """Clients and hosts need many; a shell's 1,024 are for programs that use select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_state_dir(path: Path) -> None:
    """The daemon's own files, whatever the umask: who may write there can exchange the database."""
    try:
        with opened_directory(path, makes=True):
            pass
    except OSError as error:
        raise ConfigError(
            f"The state directory {path} cannot be used: {error.strerror or error}.",
            "Set daemon.state_dir to a directory that the daemon may write to, to which no link of another "
            "account leads.",
        ) from None


def log_place(config: Config, store: SqlStore) -> tuple[Path, LogPlace]:
    """Where logs are gathered, and what keeps them: every daemon that leads on this database must find them.

    `daemon.log_dir` when it is set; else the database, when it is PostgreSQL's, or a directory beside its
    file. What users printed is nobody else's business: the directory is the daemon's alone.
    """
    named, beside = config.daemon.log_dir, store.file or Path(config.daemon.state_dir, "rm")
    directory = Path(named) if named else beside.with_name("logs")
    try:
        with opened_directory(directory, makes=True) as home:
            if not named:
                os.chmod(".", 0o700, dir_fd=home)
            if not os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=home):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(
            f"The directory for logs {directory} cannot be used: {error.strerror or error}.",
            "Set daemon.log_dir to a directory that the daemon may write to, to which no link of another "
            "account leads.",
        ) from None
    kept = None if named else store.log_place(directory)
    return directory, kept or LogDirectory(directory)


def log_reserve_bytes(config: Config, gathered: Path) -> int:
    """What logs leave of the disk to the database; of a small disk a tenth."""
    return min(config.limits.log_reserve_mb << 20, shutil.disk_usage(gathered).total // 10)
