"""Logs that have left their hosts: their names, what is recorded of each, and the port of the place that
keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True, order=True)
class LogName:
    """One stream (`out` or `err`) of one rank of one attempt."""

    job: int
    attempt: int
    rank: int
    stream: str


@dataclass(frozen=True, slots=True)
class KeptLog:
    """What became of a log, recorded when its host forgets it. An empty log has no record.

    Of the `size_bytes` that the task wrote the newest `kept_bytes` are kept; `why` is a sentence for people
    when that is not all of them.
    """

    name: LogName
    size_bytes: int = 0
    kept_bytes: int = 0
    why: str = ""


class LogPiece(NamedTuple):
    """Some bytes of the log of an attempt, from `offset` on."""

    attempt: int
    offset: int
    data: bytes


class LogPlace(Protocol):
    """Keeps logs. All daemons that may lead must share it. Its methods are called from any thread and raise
    OSError or StoreError when it cannot be used; then the host keeps its copy, and all is tried again."""

    name: str  # for sentences: "the directory /var/lib/rm/logs"

    def coming(self, log: LogName) -> Path:
        """The file of this daemon's own in which the log is gathered; its directory may not exist yet."""
        ...

    def keep(self, logs: Sequence[LogName]) -> None:
        """Keep what was gathered of each, in place of what is kept under its name; durable on return. The
        file that it was gathered in is gone then."""
        ...

    def size(self, log: LogName) -> int | None:
        """Bytes that are kept; None when there is no such log."""
        ...

    def read(self, log: LogName, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`; none at the end, and of a log that is gone."""
        ...

    def open(self, log: LogName) -> int:
        """A descriptor of a regular file with the log, for reading; the caller closes it."""
        ...

    def forget(self, known: Callable[[int], bool]) -> None:
        """Forget the logs of all jobs that are not `known`."""
        ...
