"""A database as the stores use it: who may write, in transactions, and that it is the same one still."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Connection, Engine

from rm.adapters.store.database import (
    be_patient,
    sentences,
)
from rm.adapters.store.database_files import DatabaseFiles
from rm.errors import StoreError, StoreUnavailable

TURN_S = 10  # of waiting for another writer of this process


class SqlConnections:
    """`SqlStore` sets the attributes."""

    name: str
    _engine: Engine
    _epoch: int | None
    _files: DatabaseFiles | None
    _writing: threading.RLock

    def _check_files(self) -> None:
        """Raises StoreError when the database is not the one any more that its name leads to."""
        if self._files is not None:
            self._files.check(rescue=self._epoch is not None)

    @contextmanager
    def _turn(self, purpose: str) -> Iterator[None]:
        """One writer of this process at a time; none waits for ever for another that hangs."""
        if not self._writing.acquire(timeout=TURN_S):
            raise StoreUnavailable(
                f"The database {self.name} failed to {purpose}: it has not answered for {TURN_S} s."
            )
        try:
            yield
        finally:
            self._writing.release()

    @contextmanager
    def _transaction(self, purpose: str) -> Iterator[Connection]:
        try:
            with sentences(self.name, purpose), self._engine.connect() as c:
                c = c.execution_options(rm_writes=True)
                with c.begin():
                    yield c
        except StoreError as error:
            self._check_files()
            if isinstance(error, StoreUnavailable):
                self._engine.dispose()  # a server that was made a standby keeps its connections, for one
            raise
        self._check_files()

    @contextmanager
    def _changing(self, purpose: str) -> Iterator[Connection]:
        """A writing transaction beside the leader's; one at a time, whichever thread asks."""
        with self._turn(purpose), self._transaction(purpose) as c:
            be_patient(c)
            yield c

    @contextmanager
    def _reading(self, purpose: str) -> Iterator[Connection]:
        """A connection that sees one consistent state, however many statements it runs."""
        with sentences(self.name, purpose), self._engine.connect() as c:
            if self._engine.dialect.name == "postgresql":
                c = c.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with c.begin():
                be_patient(c)
                yield c
