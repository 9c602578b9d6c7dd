"""The file of pinned host keys, changed by one writer at a time: the daemon's account, or root for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rm.adapters.owned_file import open_owned, opened_directory
from rm.errors import ConfigError


@contextmanager
def changed(known_hosts: Path) -> Iterator[list[str]]:
    """The lines of the file, written back atomically; one writer at a time. Raises ConfigError."""
    name = known_hosts.name
    try:
        with opened_directory(known_hosts.parent, makes=True) as home:
            # what root pins for the daemon's account, that account must be able to use
            lock = open_owned(home, f"{name}.lock", os.O_RDWR, makes=True)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                lines = _lines(home, name)
                yield lines
                with suppress(FileNotFoundError):  # of a writer that was killed, or somebody's link
                    os.unlink(f"{name}.new", dir_fd=home)
                aside = open_owned(home, f"{name}.new", os.O_WRONLY | os.O_EXCL, makes=True)
                with os.fdopen(aside, "w", encoding="utf-8") as file:
                    file.write("".join(line + "\n" for line in lines))
                os.replace(f"{name}.new", name, src_dir_fd=home, dst_dir_fd=home)
            finally:
                os.close(lock)
    except OSError as error:
        raise ConfigError(
            f"No host key can be pinned in {known_hosts}: {error.strerror}.",
            "Let it be a file that you may write, of who owns its directory, and no link on the way there "
            "(--known-hosts, or ssh.known_hosts in rm.toml).",
        ) from None


def _lines(home: int, name: str) -> list[str]:
    try:
        with os.fdopen(open_owned(home, name, os.O_RDONLY), encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
