"""The file of pinned host keys, changed by one writer at a time: the daemon's account, or root for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rm.adapters.owned_file import open_owned
from rm.errors import ConfigError


@contextmanager
def changed(known_hosts: Path) -> Iterator[list[str]]:
    """The lines of the file, written back atomically; one writer at a time. Raises ConfigError."""
    folder, name = known_hosts.parent, known_hosts.name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # what root pins for the daemon's account, that account must be able to use
        lock = open_owned(folder, f"{name}.lock", os.O_RDWR, makes=True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = _lines(folder, name)
            yield lines
            with suppress(FileNotFoundError):  # of a writer that was killed, or somebody's link
                os.unlink(folder / f"{name}.new")
            aside = open_owned(folder, f"{name}.new", os.O_WRONLY | os.O_EXCL, makes=True)
            with os.fdopen(aside, "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in lines))
            os.replace(folder / f"{name}.new", known_hosts)
        finally:
            os.close(lock)
    except OSError as error:
        raise ConfigError(
            f"No host key can be pinned in {known_hosts}: {error.strerror}.",
            "Let it be a file of who owns its directory, and no link (ssh.known_hosts in rm.toml).",
        ) from None


def _lines(folder: Path, name: str) -> list[str]:
    try:
        with os.fdopen(open_owned(folder, name, os.O_RDONLY), encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
