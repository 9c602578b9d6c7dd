"""The rows of a queue, read by the names of their columns: a newer daemon has more of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from rm.api.job_rows import JobRow, by_name
from rm.collector import made_at_once, uncollected
from rm.errors import Unreachable
from rm.typed import convert, decoder_of


class NamedRows(msgspec.Struct, frozen=True, kw_only=True):
    """`rm.api.jobs.JobRows` of any version: `mine`, where its columns are those that this rm knows."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool = False
    mine: list[JobRow] | None = None

    @classmethod
    def reader(cls) -> Reader:
        return Reader()


class _Mine(msgspec.Struct, frozen=True, kw_only=True):
    columns: list[str]
    rows: list[JobRow]
    more: bool = False


class Reader:
    """Of an answer: of the ways to read ten thousand rows the one that takes least comes first."""

    def __init__(self) -> None:
        self._mine, self._any = decoder_of(_Mine), decoder_of(NamedRows)

    def decode(self, data: bytes) -> NamedRows:
        """Raises msgspec.MsgspecError, UnicodeError, RecursionError: these are no rows."""
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError), made_at_once():
            found = self._mine.decode(data)
            if tuple(found.columns) == JobRow._fields:
                return NamedRows(columns=found.columns, rows=[], more=found.more, mine=found.rows)
        with uncollected():
            return self._any.decode(data)


def rows_of(answer: NamedRows) -> list[JobRow]:
    """The rows as this rm knows them.

    Raises:
        Unreachable: a column is missing, or a value is not of its type.
    """
    if answer.mine is not None:
        return answer.mine
    try:
        with uncollected():
            if tuple(answer.columns) == JobRow._fields:  # and yet they are not as they should be
                return convert(answer.rows, list[JobRow])
            made = by_name(answer.columns, answer.rows)
            return convert(list(map(list, made)), list[JobRow])
    except (msgspec.MsgspecError, UnicodeError, RecursionError, LookupError, TypeError, ValueError):
        raise Unreachable(
            "The daemon lists jobs with the columns of another version of rm.",
            "Use one version on both sides: `rmx --version` says this one.",
        ) from None
