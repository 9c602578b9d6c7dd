"""Databases for the store's contract: in memory, SQLite files, and a real PostgreSQL server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.adapters.store.opening import open_store
from tests.contract.opened import close_all, remembered
from tests.postgres import Server, running


@dataclass
class Database:
    """One database that any number of stores can be opened on."""

    kind: str
    url: str
    _open: Callable[[], Any]

    def open(self) -> Any:
        return remembered(self._open())


@pytest.fixture(autouse=True)
def _stores_are_closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A running server."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def empty_postgres(postgres_server: Server) -> Callable[[], str]:
    """Makes an empty database on the server and gives its URL."""
    numbers = count(1)

    def make(template: str = "template1") -> str:
        name = f"t{next(numbers)}"
        with postgres_server.connect() as c:
            c.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return postgres_server.url(name)

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
