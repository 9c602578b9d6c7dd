"""Databases for the store's contract: in memory, SQLite files, and a real PostgreSQL server.

The server is started by the tests on a Unix socket in a temporary directory, as an unprivileged
user when the tests run as root (PostgreSQL refuses root), and is stopped afterwards.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rm.adapters.store_memory import MemoryDatabase, MemoryStore
from rm.adapters.store_sql import open_store

NOBODY = 65534


@dataclass
class Database:
    """One database that any number of stores can be opened on."""

    kind: str
    url: str
    _open: Callable[[], Any]

    def open(self) -> Any:
        return self._open()


def postgres_binaries() -> Path | None:
    """The directory of `initdb` and `postgres`, the newest version first."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(map(Path, glob.glob("/usr/lib/postgresql/*/bin")), reverse=True)
    return next((p for p in places if (p / "postgres").exists() and (p / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The directory of a running server's socket."""
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server here (initdb is neither in PATH nor in /usr/lib/postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="rm-pg-"))
    options: dict[str, Any] = {"cwd": directory, "stdin": subprocess.DEVNULL, "env": {"LC_ALL": "C"}}
    if os.geteuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
        options |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        initdb = [binaries / "initdb", "-D", "data", "-U", "rm", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, timeout=100, **options)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(directory),
            "fsync": "off",  # these tests kill the writer, never the server
            "shared_buffers": "16MB",
        }
        flags = [arg for name, value in settings.items() for arg in ("-c", f"{name}={value}")]
        with open(directory / "log", "wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", "data", *flags],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops the server
                **options,
            )
        try:
            _await(server, directory)
            yield str(directory)
        finally:
            server.send_signal(signal.SIGINT)  # fast shutdown
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.send_signal(signal.SIGQUIT)
                server.wait(20)
    finally:
        shutil.rmtree(directory)


def _await(server: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(host=str(directory), user="rm", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(directory / 'log').read_text()}") from None
            time.sleep(0.05)


@pytest.fixture(scope="session")
def empty_postgres(postgres_server: str) -> Callable[[], str]:
    """Makes an empty database on the server and gives its URL."""
    numbers = count(1)

    def make(template: str = "template1") -> str:
        name = f"t{next(numbers)}"
        with psycopg.connect(host=postgres_server, user="rm", dbname="postgres", autocommit=True) as c:
            c.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return f"postgresql://rm@/{name}?host={postgres_server}"

    return make


@pytest.fixture(scope="session")
def make_postgres(empty_postgres: Callable[..., str]) -> Callable[[], Database]:
    url = empty_postgres()
    open_store(url).close()
    template = url.split("/")[3].split("?")[0]

    def make() -> Database:
        made = empty_postgres(template)
        return Database("postgres", made, lambda: open_store(made))

    return make


@pytest.fixture(scope="session")
def make_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Database]:
    directory = tmp_path_factory.mktemp("sqlite")
    template = directory / "template.db"
    open_store(f"sqlite:///{template}").close()
    numbers = count(1)

    def make() -> Database:
        file = directory / f"{next(numbers)}.db"
        shutil.copy(template, file)
        return Database("sqlite", f"sqlite:///{file}", lambda: open_store(f"sqlite:///{file}"))

    return make


def make_memory() -> Database:
    shared = MemoryDatabase()
    return Database("memory", "", lambda: MemoryStore(shared))


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make_database(request: pytest.FixtureRequest) -> Callable[[], Database]:
    """Makes databases of one kind; the same contract is run for each kind."""
    if request.param == "memory":
        return make_memory
    return request.getfixturevalue(f"make_{request.param}")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make_durable(request: pytest.FixtureRequest) -> Callable[[], Database]:
    return request.getfixturevalue(f"make_{request.param}")


@pytest.fixture
def database(make_database: Callable[[], Database]) -> Database:
    return make_database()


@pytest.fixture
def store(database: Database) -> Iterator[Any]:
    """A store whose holder leads."""
    opened = database.open()
    assert opened.acquire_lease("one", now_us=0, ttl_us=1_000) == 1
    yield opened
    opened.close()
