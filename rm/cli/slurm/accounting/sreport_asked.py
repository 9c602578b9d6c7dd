"""What is asked of `sreport`, and what a report is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple


class Asked(NamedTuple):
    """`tres` are named in the report where `names_tres`; `given`: its conditions by name, "" for flags."""

    report: str
    since_us: int
    until_us: int
    tres: Sequence[str]
    names_tres: bool
    given: Mapping[str, str]

    def words(self, name: str) -> frozenset[str]:
        return frozenset(one.strip() for one in self.given.get(name, "").split(",") if one.strip())

    def span(self, since_us: int, until_us: int, seconds: bool = True) -> str:
        """As the titles have it; the end is the last second."""
        first, last = (datetime.fromtimestamp(us // 1_000_000) for us in (since_us, until_us - 1_000_000))
        length = f" ({(until_us - since_us) // 1_000_000} secs)" if seconds else ""
        return f"{first:%Y-%m-%dT%H:%M:%S} - {last:%Y-%m-%dT%H:%M:%S}{length}"


class Report(NamedTuple):
    """`title` stands above its `lines`."""

    title: Sequence[str]
    lines: Sequence[str]
