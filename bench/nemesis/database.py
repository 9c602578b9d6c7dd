"""The databases that daemons lead on, and what can befall them."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Protocol

from bench.nemesis.daemon import FILLER, STATE_MB, fill, write_protect
from rm.errors import RmError
from rm.lab import Lab
from rm.lab import syscalls as sc
from tests.postgres import Server, binaries


class Database(Protocol):
    """`begin` and `end` a fault by the name of its kind."""

    url: str

    def begin(self, kind: str) -> None: ...

    def end(self, kind: str) -> None: ...

    def fill_disk(self) -> None: ...

    def free_disk(self) -> None: ...

    def write_protect(self, on: bool) -> None: ...

    def close(self) -> None: ...


class Postgres:
    """A server of its own at the machine's address in the lab, so that its network can be cut."""

    def __init__(self, lab: Lab) -> None:
        programs = binaries()
        if programs is None:
            raise RmError("There are no programs of PostgreSQL here.", "Install PostgreSQL's server.")
        address = lab.hosts[0].address.rsplit(".", 2)[0]
        self._server = Server(programs, listen_addresses=f"{address}.0.1")
        with (self._server.directory / "data/pg_hba.conf").open("a") as file:
            file.write(f"host all all {address}.0.0/16 trust\n")
        self._server.start()
        with self._server.connect() as c:
            c.execute("CREATE DATABASE rm")
        self.url = f"postgresql://rm@{address}.0.1/rm"

    def begin(self, kind: str) -> None:
        if kind == "database restarted":
            self._server.end(signal.SIGINT)
            self._server.start()
        elif kind == "database crashed":
            self._server.end(signal.SIGQUIT)
        elif kind == "database paused":
            self._server.signal_all(signal.SIGSTOP)
        elif kind == "database with its sessions ended":
            with self._server.connect() as c:
                c.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'rm'")

    def end(self, kind: str) -> None:
        if kind == "database crashed":
            self._server.start()
        elif kind == "database paused":
            self._server.signal_all(signal.SIGCONT)

    def in_transaction(self) -> int:
        """How many sessions have a transaction open now."""
        with self._server.connect() as c:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'rm' AND xact_start IS NOT NULL"
            row = c.execute(query).fetchone()
        return int(row[0]) if row else 0

    def fill_disk(self) -> None:
        """Its disk is not the daemon's."""

    def free_disk(self) -> None:
        pass

    def write_protect(self, on: bool) -> None:
        pass

    def close(self) -> None:
        self._server.remove()


class Sqlite:
    """One file on a small file system, which all daemons share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        sc.mount("tmpfs", str(directory), "tmpfs", 0, f"mode=0700,size={STATE_MB}m")
        self._file = directory / "rm.sqlite3"
        self.url = f"sqlite:///{self._file}"
        self._other: sqlite3.Connection | None = None

    def begin(self, kind: str) -> None:
        if kind == "database locked by another process":
            other = sqlite3.connect(self._file, isolation_level=None, timeout=30, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            self._other = other

    def end(self, kind: str) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None

    def is_locked(self) -> bool:
        """Does anybody write just now?"""
        other = sqlite3.connect(self._file, isolation_level=None, timeout=0)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        finally:
            other.close()
        return False

    def fill_disk(self) -> None:
        fill(self._directory)

    def free_disk(self) -> None:
        (self._directory / FILLER).unlink(missing_ok=True)

    def write_protect(self, on: bool) -> None:
        write_protect(self._directory, on)

    def close(self) -> None:
        self.end("")
        sc.unmount(str(self._directory))
