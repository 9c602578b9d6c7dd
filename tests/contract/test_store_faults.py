"""A database that blinks: what was committed is committed once, and a leader that vanished blocks nobody."""

from __future__ import annotations

import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rm.adapters.store import database as connections
from rm.adapters.store import statements
from rm.config.sections import DaemonConfig
from rm.core.store import Batch, Entry
from rm.errors import StaleLeader, StoreUnavailable
from tests import builders
from tests.cluster import until
from tests.contract.opened import connected, open_store
from tests.postgres import Server

BATCH = Batch(jobs=(builders.job(1),), events=(Entry(1, "submit"),))


class Proxy:
    """Stands between a store and PostgreSQL, and ends the connection around the next COMMIT."""

    def __init__(self, server: Path) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="rm-pgp-")
        self.cut = ""  # "before" or "after" the server has carried it out
        self._server = str(server / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self.directory.name}/.s.PGSQL.5432")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.directory.cleanup()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self.cut and b"COMMIT" in data:
                    self._around_commit(data, server, client)
                    return
                server.sendall(data)
        server.close()

    def _around_commit(self, data: bytes, server: socket.socket, client: socket.socket) -> None:
        when, self.cut = self.cut, ""
        client.shutdown(socket.SHUT_WR)  # the answer is lost
        if when == "after":
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
        client.close()

    def _forward(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                with suppress(OSError):
                    client.sendall(data)


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    made = Proxy(postgres_server.directory)
    yield made
    made.close()


@pytest.mark.postgres
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_was_lost_is_written_once(
    empty_postgres: Callable[[], str], postgres_server: Server, proxy: Proxy, when: str
) -> None:
    url = empty_postgres()
    store = open_store(url.replace(str(postgres_server.directory), proxy.directory.name))
    store.acquire_lease("a", 0, 1)
    proxy.cut = when
    with pytest.raises(StoreUnavailable):
        store.commit(BATCH, 0)
    assert proxy.cut == ""
    assert store.commit(BATCH, 0) == 1
    with pytest.raises(StaleLeader, match="version 1"):
        store.commit(Batch(jobs=BATCH.jobs), 0)  # another one is not taken for it
    assert store.commit(Batch(), 1) == 2
    assert [e.kind for _, e in store.journal()] == ["submit"]
    store.close()


@pytest.mark.postgres
def test_a_commit_in_doubt_is_refused_when_another_leads_by_now(
    empty_postgres: Callable[[], str], postgres_server: Server, proxy: Proxy
) -> None:
    url = empty_postgres()
    one = open_store(url.replace(str(postgres_server.directory), proxy.directory.name))
    two = open_store(url)
    one.acquire_lease("one", 0, 1)
    proxy.cut = "before"
    with pytest.raises(StoreUnavailable):
        one.commit(BATCH, 0)
    two.acquire_lease("two", 0, 1, over=two.lease())
    assert two.commit(Batch(), 0) == 1
    with pytest.raises(StaleLeader, match="does not lead"):
        one.commit(BATCH, 0)
    assert two.load().jobs == ()
    one.close()
    two.close()


@pytest.mark.postgres
def test_a_leader_that_vanishes_inside_a_commit_holds_nobody_up(
    empty_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = empty_postgres()
    one = open_store(url)
    one.acquire_lease("one", 0, 1)
    monkeypatch.setitem(connections._POSTGRES, "lock_timeout", 100)
    two = open_store(url)
    with closing(connected(url)) as vanished:
        vanished.execute(statements.CLUSTER_FOR_UPDATE)
        # only from here on: a busy machine may well make a pause as long between two statements
        vanished.exec_driver_sql("SET idle_in_transaction_session_timeout = 200")  # and then nothing more
        seen = two.lease()  # waits for no lock

        def led() -> Any:
            with suppress(StoreUnavailable):
                return two.acquire_lease("two", 0, 1, over=seen)

        assert until(led, "the standby has the row") == 2
        vanished.invalidate()  # the server has ended it
    one.close()
    two.close()


@pytest.mark.postgres
def test_the_server_is_told_to_end_what_a_vanished_leader_holds_before_its_lease_is_over(
    empty_postgres: Callable[[], str],
) -> None:
    with closing(connected(empty_postgres())) as session:

        def set_to(name: str) -> int:
            found = sa.text("SELECT setting::int FROM pg_settings WHERE name = :name")
            return int(session.execute(found, {"name": name}).scalar_one())

        for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
            assert 0 < set_to(name) < DaemonConfig().lease_s * 1000
        assert set_to("statement_timeout") > 0


@pytest.mark.postgres
def test_a_standby_ends_the_commit_of_a_leader_that_hangs_in_the_middle_of_its_statements(
    empty_postgres: Callable[[], str],
) -> None:
    url = empty_postgres()
    one, two = open_store(url), open_store(url)
    one.acquire_lease("one", 0, 1)
    with closing(connected(url)) as vanished, closing(connected(url)) as other:
        other.exec_driver_sql("SELECT 1 FROM jobs")  # holds nothing that a leader needs
        raw: Any = vanished.connection.driver_connection
        raw.pgconn.enter_pipeline_mode()
        raw.pgconn.send_query_params(b"BEGIN", [])
        raw.pgconn.send_query_params(b"SELECT epoch FROM cluster FOR UPDATE", [])
        raw.pgconn.send_flush_request()  # and then nothing more: no timeout of the server counts
        raw.pgconn.flush()
        pid = raw.info.backend_pid
        held = sa.text("SELECT 1 FROM pg_locks WHERE pid = :pid AND mode = 'RowShareLock'")
        until(lambda: other.execute(held, {"pid": pid}).first(), "the row is held")
        assert two.acquire_lease("two", 0, 1, over=two.lease()) == 2
        assert other.exec_driver_sql("SELECT 2").scalar_one() == 2
        vanished.invalidate()
    one.close()
    two.close()


@pytest.mark.postgres
def test_a_server_that_restarts_or_refuses_connections_is_away_and_no_error_of_the_store(
    postgres_server: Server, empty_postgres: Callable[[], str]
) -> None:
    store = open_store(empty_postgres())
    store.acquire_lease("a", 0, 1)
    postgres_server.end()
    try:
        for work in (lambda: store.commit(BATCH, 0), store.load, store.lease):
            with pytest.raises(StoreUnavailable, match="Is PostgreSQL running"):
                work()
    finally:
        postgres_server.start()
    assert store.commit(BATCH, 0) == 1
    store.close()


def test_a_database_that_another_process_locks_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", 1)
    store = open_store(f"sqlite:///{tmp_path}/rm.db")
    store.acquire_lease("a", 0, 1)
    with closing(sqlite3.connect(tmp_path / "rm.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.commit(BATCH, 0)
        assert store.lease().holder == "a"
    assert store.commit(BATCH, 0) == 1
    store.close()


def test_a_disk_that_was_made_read_only_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file system does after errors. What is open stays writable; what is opened anew is not."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", 1)
    store = open_store(f"sqlite:///{tmp_path}/rm.db")
    store.acquire_lease("a", 0, 1)

    def opened(raw: Any, record: object) -> None:
        raw.execute("PRAGMA query_only = 1").close()

    sa.event.listen(sa.Engine, "connect", opened)
    try:
        with closing(sqlite3.connect(tmp_path / "rm.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                store.commit(BATCH, 0)  # whereupon all connections are made anew
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="readonly database"):
                store.commit(BATCH, 0)
    finally:
        sa.event.remove(sa.Engine, "connect", opened)
    assert store.commit(BATCH, 0) == 1
    store.close()
