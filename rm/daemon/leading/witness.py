"""What this daemon has acknowledged, kept outside the database: an older or empty one in its place is found.

One line in the state directory: the cluster's id and the version of the last commit. It is not synced: after
a power cut it may be older than the database, never newer.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rm.core.store import Loaded
from rm.errors import ConfigError, StoreError

log = logging.getLogger(__name__)
NAME = "acknowledged"


class Witness:
    """Of one state directory. `note` is for one thread."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / NAME
        self._cluster = ""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}.") from None

    def check(self, loaded: Loaded, database: str) -> None:
        """Compare the database that was opened with what was acknowledged.

        Raises:
            StoreError: it is another cluster's, or lacks commits that were acknowledged.
        """
        self._cluster = loaded.cluster
        seen = self._read()
        if seen is None:
            self.note(loaded.version)
            return
        cluster, version = seen
        if cluster != loaded.cluster:
            new = ", which is new" if not loaded.version else ""
            raise StoreError(
                f"The database {database} is of cluster {loaded.cluster}{new}, and {self._path.parent} "
                f"belongs to cluster {cluster}: its database was deleted, or daemon.database was changed.",
                f"Put it back: rmx restore FILE. Or, for another cluster: rm {self._path}",
            )
        if version > loaded.version:
            raise StoreError(
                f"The database {database} is at version {loaded.version}, and this daemon has acknowledged "
                f"version {version}: its write-ahead log was deleted, or an older copy took its place.",
                f"Put it back, or restore a backup: rmx restore FILE. Or go on without: rm {self._path}",
            )

    def note(self, version: int) -> None:
        """The commit of this version is about to be acknowledged."""
        os.pwrite(self._fd, _line(self._cluster, version), 0)

    def close(self) -> None:
        os.close(self._fd)

    def _read(self) -> tuple[str, int] | None:
        cluster, _, version = os.pread(self._fd, 256, 0).decode("ascii", "replace").strip().partition(" ")
        version = version.strip()
        if not version.isdecimal():
            if cluster:
                log.warning("%s is damaged; it is written anew", self._path)
            return None
        return cluster, int(version)


def acknowledged(state_dir: Path) -> int | None:
    """The version of the last commit that was acknowledged there; None: nothing says so."""
    try:
        _, _, version = (state_dir / NAME).read_text("ascii", "replace").strip().partition(" ")
    except OSError:
        return None
    return int(version) if version.strip().isdecimal() else None


def _line(cluster: str, version: int) -> bytes:
    return f"{cluster:<32} {version:020d}\n".encode()
