"""What a benchmark returns, and how it is shown."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Settings:
    """How thorough to be: `quick` takes fewer samples, never easier problems. `hosts` is the size of the lab
    for the playbook; with `install_peers` what it is compared with may be installed."""

    quick: bool = False
    hosts: int = 16
    install_peers: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    `target` is the bound that it should keep, None where there is none; with `at_least` it is a
    lower bound. `peer` says what other programs need for the same, and under which conditions.
    """

    what: str
    value: float
    unit: str
    conditions: str = ""
    target: float | None = None
    at_least: bool = False
    peer: str = ""

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def lines(self) -> Iterator[str]:
        bound = ""
        if self.target is not None:
            sign = "≥" if self.at_least else "≤"
            bound = f"{sign} {self.target:,.4g} {self.unit}: {'reached' if self.reached else 'NOT reached'}"
        yield f"  {self.what:52} {number(self.value):>9} {self.unit:7} {bound}".rstrip()
        for text in (self.conditions, f"peers: {self.peer}" if self.peer else ""):
            yield from textwrap.wrap(text, WIDTH - 6, initial_indent="      ", subsequent_indent="      ")

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what, "value": self.value, "unit": self.unit, "conditions": self.conditions,
            "target": self.target, "at_least": self.at_least, "reached": self.reached, "peer": self.peer,
        }  # fmt: skip


def number(value: float) -> str:
    """Three significant digits, and no fewer digits before the point than there are."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def missed(figures: Iterable[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.reached is False]


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[18] if len(values) > 1 else values[0]
