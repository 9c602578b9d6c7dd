"""The grid of what was measured between hosts, in MaDDash's manner.

A cell is one direction, the row's host to the column's. For each check it has a status: its letter and
colour, and the value. Statuses are those of the meshes that test the pair; a pair that no mesh tests is
judged by the thresholds of the mesh that there is when rm.toml names none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm.api.monitoring import Cell
from rm.api.network import Pair
from rm.core.monitoring.cells import Status
from rm.core.monitoring.judging import judge
from rm.core.monitoring.mesh import USUAL
from rm.core.monitoring.metrics import METRIC_OF, RARE, SERVICES
from rm.web.pages.text import duration, percent, short_rate, shown, since

JUDGED = ("loss",)  # the checks that have such a threshold
PLACED_BY = ("loss", "delay", "bandwidth")  # what placement knows
VALUES_MOST = 10  # hosts of a grid that shows the numbers, too
LARGEST = 128  # hosts of a grid, at all
WORST_FIRST = (Status.CRITICAL, Status.WARN, Status.UNKNOWN, Status.MAINTENANCE, Status.OK, Status.NOT_RUN)
RANK = {status: rank for rank, status in enumerate(WORST_FIRST)}
Cells = Mapping[tuple[str, str, str], "Tested"]  # (check, source, destination) of the meshes
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
    """`rows` are (host, cells), None where a host meets itself and tests nothing so; `values`: is there
    room for numbers?"""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridCell | None, ...]], ...]
    values: bool
    left_out: int


@dataclass(frozen=True, slots=True)
class Tested:
    """A cell of a mesh."""

    mesh: str
    cell: Cell

    @property
    def status(self) -> Status:
        return Status(self.cell.status)


def value_of(pair: Pair, check: str) -> float | None:
    """What placement knows of a check's metric; of a path MTU only the meshes' cells know."""
    known = {"loss": pair.loss_pct, "delay": pair.delay_us, "bandwidth": pair.bandwidth_bps}
    return known.get(check)


def worst_of(told: Iterable[Tested]) -> dict[tuple[str, str, str], Tested]:
    """The meshes' cells by check and direction; of several that test the same, the worst."""
    found: dict[tuple[str, str, str], Tested] = {}
    for one in told:
        key = one.cell.check, one.cell.source, one.cell.destination
        known = found.get(key)
        if known is None or RANK[one.status] < RANK[known.status]:
            found[key] = one
    return found


def statuses(pair: Pair, cells: Cells) -> Statuses:
    """What counts of each check of one direction."""
    way, failures = (pair.source, pair.destination), pair.failures
    found: list[Status] = []
    for check in METRIC_OF:
        told = cells.get((check, *way))
        if told is not None and told.status is not Status.NOT_RUN:
            found.append(told.status)
        elif (value := value_of(pair, check)) is None:
            # the others are in the meshes' cells only
            tried = failures and check in PLACED_BY
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
    checks = tuple(
        Check(name, "not-run", Status.NOT_RUN.letter, "–") for name in METRIC_OF if name not in RARE
    )

    def one(a: str, b: str) -> GridCell | None:
        if a == b:
            return made(a, b)
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
    source, destination = pair.source, pair.destination
    checks, said = [], []
    for check, status in zip(METRIC_OF, statuses(pair, cells), strict=True):
        told = cells.get((check, source, destination))
        if told is None and check in RARE:
            continue
        value = value_of(pair, check)
        word = status.word
        if told is not None and told.status is not Status.NOT_RUN:
            value = told.cell.value  # the figure that made the status
            message = shown(told.cell.message, 200)
            if told.cell.result != told.cell.status:
                tries = f"{told.cell.streak} tries" if told.cell.streak > 1 else "try"
                word += f", in the last {tries} {Status(told.cell.result).word}"
        elif status is Status.NOT_RUN:
            message = f"{check} not measured"
        elif status is Status.UNKNOWN:
            message = f"{check}: {pair.failures} tries in a row failed"
        else:
            message = judge(check, value or 0, "", USUAL)[1]
        checks.append(Check(check, status.word.replace(" ", "-"), status.letter, _value(check, value)))
        said.append(f"{message} ({word})")
    age = pair.age_us
    said.append("never measured" if age is None else f"measured {since(1, 1 + age)} ago")
    sure = pair.confidence
    if sure is not None and age is not None:
        said.append(f"confidence {sure:.0%}")
    way = f"{shown(source, 40)} to {shown(destination, 40)}"
    return GridCell(tuple(checks), f"{way}: {'; '.join(said)}", (source, destination))


def alone(host: str, cells: Cells) -> GridCell | None:
    """The cell of what a host tests by itself; None: nothing."""
    checks, said = [], []
    for check in SERVICES:
        told = cells.get((check, host, host))
        if told is not None:
            word = told.status.word
            value = _value(check, told.cell.value)
            checks.append(Check(check, word.replace(" ", "-"), told.status.letter, value))
            said.append(f"{shown(told.cell.message, 200)} ({word})")
    return GridCell(tuple(checks), f"{shown(host, 40)}: {'; '.join(said)}", (host, host)) if checks else None


def _value(check: str, value: float | None) -> str:
    if value is None:
        return "–"
    if check == "loss":
        return percent(value)
    if check in ("delay", *SERVICES):
        return duration(value)
    return short_rate(value) if check == "bandwidth" else f"{value:.0f}"
