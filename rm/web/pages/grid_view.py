"""The grid of what was measured between hosts, in MaDDash's manner.

A cell is one direction, the row's host to the column's. For each check it has a status: its letter and
colour, and the value. Statuses are those of the meshes that test the pair; a pair that no mesh tests is
judged by the thresholds of the mesh that there is when rm.toml names none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rm.core.monitoring.cells import Status
from rm.core.monitoring.judging import judge
from rm.core.monitoring.mesh import USUAL
from rm.core.monitoring.metrics import METRIC_OF
from rm.web.pages.text import duration, percent, short_rate, shown, since

JUDGED = ("loss",)  # the checks that have such a threshold
VALUES_MOST = 10  # hosts of a grid that shows the numbers, too
LARGEST = 128  # hosts of a grid, at all
WORST_FIRST = (Status.CRITICAL, Status.WARN, Status.UNKNOWN, Status.MAINTENANCE, Status.OK, Status.NOT_RUN)
RANK = {status: rank for rank, status in enumerate(WORST_FIRST)}
Pair = Mapping[str, Any]
Cells = Mapping[tuple[str, str, str], Mapping[str, Any]]  # (check, source, destination) of the meshes
Statuses = tuple[Status, ...]  # of the checks, in their order


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str  # a word, which is also the style's name
    letter: str
    value: str


@dataclass(frozen=True, slots=True)
class GridCell:
    """`says` is all of it in words; `way` the two hosts, None of a cell for many pairs."""

    checks: tuple[Check, ...]
    says: str
    way: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Grid:
    """`rows` are (host, cells), None where a host meets itself; `values`: is there room for numbers?"""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridCell | None, ...]], ...]
    values: bool
    left_out: int


def worst_of(told: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """The meshes' cells by check and direction; of several that test the same, the worst."""
    found: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for cell in told:
        key = cell["check"], cell["source"], cell["destination"]
        known = found.get(key)
        if known is None or RANK[cell["status"]] < RANK[known["status"]]:
            found[key] = cell
    return found


def statuses(pair: Pair, cells: Cells) -> Statuses:
    """What counts of each check of one direction."""
    way, failures = (pair["source"], pair["destination"]), pair.get("failures")
    found = []
    for check, field in METRIC_OF.items():
        told = cells.get((check, *way))
        if told is not None and told["status"] != Status.NOT_RUN:
            found.append(Status(told["status"]))
        elif (value := pair.get(field)) is None:
            # a path MTU is in the meshes' cells only
            tried = failures and field in pair
            found.append(Status.UNKNOWN if tried else Status.NOT_RUN)
        elif failures:
            found.append(Status.UNKNOWN)
        else:
            found.append(judge(check, value, "", USUAL)[0] if check in JUDGED else Status.OK)
    return tuple(found)


def worst(found: Iterable[Status]) -> Status:
    return min(found, key=RANK.__getitem__)


def grid(
    key: str,
    title: str,
    names: Sequence[str],
    made: Callable[[str, str], GridCell | None],
) -> Grid:
    """`made` of a direction; None: nothing was ever measured there."""
    drawn = names[:LARGEST]
    checks = tuple(Check(name, "not-run", Status.NOT_RUN.letter, "–") for name in METRIC_OF)

    def one(a: str, b: str) -> GridCell | None:
        if a == b:
            return None
        return made(a, b) or GridCell(checks, f"{shown(a, 40)} to {shown(b, 40)}: never measured", None)

    return Grid(
        key=key,
        title=title,
        columns=tuple(shown(name, 40) for name in drawn),
        rows=tuple((shown(a, 40), tuple(one(a, b) for b in drawn)) for a in drawn),
        values=len(drawn) <= VALUES_MOST,
        left_out=len(names) - len(drawn),
    )


def cell(pair: Pair, cells: Cells) -> GridCell:
    """The cell of one direction."""
    source, destination = pair["source"], pair["destination"]
    checks, said = [], []
    for (check, field), status in zip(METRIC_OF.items(), statuses(pair, cells), strict=True):
        told = cells.get((check, source, destination))
        value = pair.get(field)
        word = status.word
        if told is not None and told["status"] != Status.NOT_RUN:
            value = told["value"]  # the figure that made the status
            message = shown(told["message"], 200)
            if told.get("result", told["status"]) != told["status"]:
                tries = f"{told['streak']} tries" if told["streak"] > 1 else "try"
                word += f", in the last {tries} {Status(told['result']).word}"
        elif status is Status.NOT_RUN:
            message = f"{check} not measured"
        elif status is Status.UNKNOWN:
            message = f"{check}: {pair['failures']} tries in a row failed"
        else:
            message = judge(check, value, "", USUAL)[1]
        checks.append(Check(check, status.word.replace(" ", "-"), status.letter, _value(check, value)))
        said.append(f"{message} ({word})")
    age = pair.get("age_us")
    said.append("never measured" if age is None else f"measured {since(1, 1 + age)} ago")
    sure = pair.get("confidence")
    if sure is not None and age is not None:
        said.append(f"confidence {sure:.0%}")
    way = f"{shown(source, 40)} to {shown(destination, 40)}"
    return GridCell(tuple(checks), f"{way}: {'; '.join(said)}", (source, destination))


def _value(check: str, value: Any) -> str:
    if value is None:
        return "–"
    if check == "loss":
        return percent(value)
    if check == "delay":
        return duration(value)
    return short_rate(value) if check == "bandwidth" else f"{value:.0f}"
