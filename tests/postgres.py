"""A real PostgreSQL server for tests: on a Unix socket in a temporary directory, as an unprivileged user
when the tests run as root (PostgreSQL refuses root). It can be ended, killed and frozen."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

NOBODY = 65534
START_S = 60
shared: Path | None = None  # what `initdb` has made, for all workers of a run: it takes half a second


def binaries() -> Path | None:
    """The directory of `initdb` and `postgres`, the newest version first."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(map(Path, glob.glob("/usr/lib/postgresql/*/bin")), reverse=True)
    return next((p for p in places if (p / "postgres").exists() and (p / "initdb").exists()), None)


def _copy(place: Path, other: Path) -> None:
    """With its owner."""
    subprocess.run(["cp", "-a", place, other], check=True, capture_output=True, timeout=100)


class Server:
    """One server; `directory` is its socket's. Call `remove` at the end."""

    def __init__(self, programs: Path, **settings: str) -> None:
        self.programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix="rm-pg-"))
        self._options: dict[str, Any] = {
            "cwd": self.directory,
            "stdin": subprocess.DEVNULL,
            "env": {"LC_ALL": "C"},
        }
        if os.geteuid() == 0:
            os.chown(self.directory, NOBODY, NOBODY)
            self._options |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self._settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "fsync": "off",  # the machine itself is never switched off
            "shared_buffers": "16MB",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._initialise()
        except BaseException:
            self.remove()
            raise

    def _initialise(self) -> None:
        """By `initdb`, or as the first one of a run was."""
        if shared is None:
            self._initdb()
            return
        data = self.directory / "data"
        with open(f"{shared}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if shared.exists():
                _copy(shared, data)
                return
            self._initdb()
            unfinished = shared.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)  # of one that was stopped while it copied
            _copy(data, unfinished)
            unfinished.rename(shared)

    def _initdb(self) -> None:
        flags = ["-D", "data", "-U", "rm", "-A", "trust", "-E", "UTF8", "--no-sync"]
        argv = [self.programs / "initdb", *flags]
        subprocess.run(argv, check=True, capture_output=True, timeout=100, **self._options)

    def start(self) -> None:
        import psycopg  # few of the workers need it

        flags = [arg for name, value in self._settings.items() for arg in ("-c", f"{name}={value}")]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", "data", *flags],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops the server
                **self._options,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"PostgreSQL did not start:\n{(self.directory / 'log').read_text()}"
                    ) from None
                time.sleep(0.05)

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        import psycopg

        return psycopg.connect(host=str(self.directory), user="rm", dbname=database, autocommit=True)

    def url(self, database: str) -> str:
        return f"postgresql://rm@/{database}?host={self.directory}"

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends its transactions, SIGQUIT leaves them to the recovery at the next start."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_S)
        self._process = None

    def signal_all(self, number: signal.Signals) -> None:
        """Every process of the server: SIGSTOP and SIGCONT freeze and thaw it as a whole."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, number)  # first: one that stands still has no further children
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(int(child), number)

    def remove(self) -> None:
        try:
            self.end()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def running() -> Iterator[Server]:
    """A server; whoever asks for it is skipped where PostgreSQL is not installed."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server here (initdb is neither in PATH nor in /usr/lib/postgresql)")
    server = Server(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()
