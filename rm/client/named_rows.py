"""The rows of a queue, read by the names of their columns: a newer daemon has more of them."""

from __future__ import annotations

from typing import Any

import msgspec

from rm.api.job_rows import JobRow, by_name
from rm.collector import uncollected
from rm.errors import Unreachable
from rm.typed import convert, decoder_of

_mine = decoder_of(list[JobRow])
_any = decoder_of(list[list[Any]])


class NamedRows(msgspec.Struct, frozen=True, kw_only=True):
    """`rm.api.jobs.JobRows` of any version."""

    columns: list[str]
    rows: msgspec.Raw
    more: bool = False


def rows_of(answer: NamedRows) -> list[JobRow]:
    """The rows as this rm knows them.

    Raises:
        Unreachable: a column is missing, or a value is not of its type.
    """
    try:
        with uncollected():
            if tuple(answer.columns) == JobRow._fields:
                return _mine.decode(answer.rows)
            made = by_name(answer.columns, _any.decode(answer.rows))
            return convert(list(map(list, made)), list[JobRow])
    except (msgspec.MsgspecError, UnicodeError, RecursionError, LookupError, TypeError, ValueError):
        raise Unreachable(
            "The daemon lists jobs with the columns of another version of rm.",
            "Use one version on both sides: `rmx --version` says this one.",
        ) from None
