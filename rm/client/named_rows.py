"""The rows of a queue, read by the names of their columns: a newer daemon has more of them."""

from __future__ import annotations

from typing import Any

import msgspec

from rm.api.job_rows import JobRow, by_name
from rm.errors import Unreachable
from rm.typed import convert


class NamedRows(msgspec.Struct, frozen=True, kw_only=True):
    """`rm.api.jobs.JobRows` of any version."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool = False


def rows_of(answer: NamedRows) -> list[JobRow]:
    """The rows as this rm knows them.

    Raises:
        Unreachable: a column is missing, or a value is not of its type.
    """
    try:
        made = list(map(by_name(answer.columns), answer.rows))
        return convert(list(map(list, made)), list[JobRow])
    except (msgspec.ValidationError, LookupError, TypeError, ValueError):
        raise Unreachable(
            "The daemon lists jobs with the columns of another version of rm.",
            "Use one version on both sides: `rmx --version` says this one.",
        ) from None
