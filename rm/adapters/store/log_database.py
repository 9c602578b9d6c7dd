"""Logs in the database, compressed, for daemons that share one: of each log its parts of `PART_BYTES`."""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rm.adapters.store import schema
from rm.adapters.store.log_directory import forget_folders
from rm.core.model.logs import LogName

PART_BYTES = 256 * 1024  # before compression
AT_ONCE = 4  # transactions: the other connections are for the leader and those who ask

Opened = Callable[[str], AbstractContextManager[Connection]]


class LogDatabase:
    """A `LogPlace`. What comes from hosts is gathered below `gathered` on this machine."""

    def __init__(self, name: str, reading: Opened, changing: Opened, gathered: Path) -> None:
        self.name = f"the database {name}"
        self._reading, self._changing = reading, changing
        self._gathered = gathered
        self._own = secrets.token_hex(4)
        self._turns = threading.Semaphore(AT_ONCE)

    def coming(self, log: LogName) -> Path:
        return self._gathered / f"{log.job}.{log.attempt}" / f"{log.rank}.{log.stream}.{self._own}.part"

    def keep(self, logs: Sequence[LogName]) -> None:
        for log in logs:
            coming = self.coming(log)
            with self._turns, self._changing("keep a log") as c, coming.open("rb") as file:
                c.execute(sa.delete(schema.log_parts).where(_of(log)))
                for number, data in enumerate(iter(lambda: file.read(PART_BYTES), b"")):
                    row = {**_key(log), "number": number, "size_bytes": len(data)}
                    c.execute(sa.insert(schema.log_parts), {**row, "data": zlib.compress(data, 1)})
        for log in logs:
            self.coming(log).unlink(missing_ok=True)
        for folder in {self.coming(log).parent for log in logs}:
            with suppress(OSError):  # another log is being gathered there
                folder.rmdir()

    def size(self, log: LogName) -> int | None:
        with self._turn("read a log") as c:
            found = c.scalar(sa.select(sa.func.sum(schema.log_parts.c.size_bytes)).where(_of(log)))
        return None if found is None else int(found)

    def read(self, log: LogName, offset: int, limit: int) -> bytes:
        first, last = offset // PART_BYTES, (offset + limit - 1) // PART_BYTES
        columns = schema.log_parts.c
        query = sa.select(columns.data).where(_of(log), columns.number.between(first, last))
        with self._turn("read a log") as c:
            found = b"".join(zlib.decompress(data) for data in c.scalars(query.order_by(columns.number)))
        begin = offset - first * PART_BYTES
        return found[begin : begin + limit]

    def open(self, log: LogName) -> int:
        self._gathered.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._gathered) as file:
            offset = 0
            while data := self.read(log, offset, PART_BYTES):
                file.write(data)
                offset += len(data)
            file.seek(0)
            return os.dup(file.fileno())

    def forget(self, known: Callable[[int], bool]) -> None:
        parts = schema.log_parts
        with self._turn("read the logs") as c:
            jobs = list(c.scalars(sa.select(parts.c.job).distinct()))
        for job in jobs:
            if not known(job):
                with self._turns, self._changing("forget logs") as c:
                    c.execute(sa.delete(parts).where(parts.c.job == job))
        forget_folders(self._gathered, known)  # of daemons that ended while they gathered

    @contextmanager
    def _turn(self, purpose: str) -> Iterator[Connection]:
        with self._turns, self._reading(purpose) as c:
            yield c


def _key(log: LogName) -> dict[str, int | str]:
    return {"job": log.job, "attempt": log.attempt, "rank": log.rank, "stream": log.stream}


def _of(log: LogName) -> sa.ColumnElement[bool]:
    columns = schema.log_parts.c
    return sa.and_(*(columns[name] == value for name, value in _key(log).items()))
