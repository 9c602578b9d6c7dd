"""What jobs used, as the page draws it: by day, and by account, user, QOS, partition and host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from rm.api.usage import UsageLine
from rm.core.sharing.ended import WAIT_KINDS
from rm.core.sharing.usage_query import NAMES
from rm.units import DAY_US, HOUR_US
from rm.web.pages.text import shown

DAYS = {"7": "week", "30": "month", "90": "quarter", "365": "year"}
USUAL = "30"
HOST = "host"
FILTERS = (*NAMES, HOST)
HEADINGS = {"qos": "QOS"}
ROWS_MOST = 25
WIDTH, HEIGHT = 600.0, 100.0
Value = Callable[[UsageLine], int]


@dataclass(frozen=True, slots=True)
class Chart:
    """`bars` is a path: one for each day; `top` is the height of the drawing in hours."""

    title: str
    bars: str
    top: str
    total: str
    says: str


@dataclass(frozen=True, slots=True)
class Row:
    """`share` of the widest one's bar, of 100; `only` is the query that shows this one alone."""

    name: str
    only: str
    share: float
    jobs: str
    gpu: str
    gpu_busy: str
    cpu: str
    waited: str
    lost: str
    saved: str


@dataclass(frozen=True, slots=True)
class Table:
    key: str
    heading: str
    rows: tuple[Row, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Day:
    day: str
    jobs: str
    gpu: str
    cpu: str
    waited: str
    lost: str
    saved: str


@dataclass(frozen=True, slots=True)
class Wait:
    """`share` of all waiting, of 100."""

    kind: str
    waited: str
    share: float


@dataclass(frozen=True, slots=True)
class Drawn:
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    days: tuple[Day, ...]
    waits: tuple[Wait, ...]
    whole: Row | None
    gpus: bool
    saved: bool


def named_by(only: Collection[str]) -> tuple[str, ...]:
    """What there is a table of, where only jobs with these names are asked for: hosts are added up apart."""
    if HOST in only:
        return (HOST,)
    return NAMES if only else FILTERS


def heading(name: str) -> str:
    """`qos` as `QOS`; the others as they are."""
    return HEADINGS.get(name, name)


def drawn(
    by_day: Sequence[UsageLine],
    by_name: Sequence[tuple[str, Sequence[UsageLine]]],
    since_us: int,
    until_us: int,
    kept: dict[str, str],
) -> Drawn:
    """`kept` is the query of the page, into which a row's link puts its name."""
    gpus, saved = any(line.gpu_us for line in by_day), any(line.saved_us for line in by_day)
    first = since_us // DAY_US
    count = max(1, -(-until_us // DAY_US) - first)
    kinds: tuple[tuple[str, Value], ...] = (
        ("GPU hours held", lambda line: line.gpu_us) if gpus
        else ("Processor hours held", lambda line: line.cpu_us),
        ("Hours that jobs waited", lambda line: line.waited_us),
        ("Hours lost to others on links", lambda line: line.slowed_us),
        *([("Hours saved by interleaving", lambda line: line.saved_us)] if saved else []),
    )  # fmt: skip
    charts = tuple(_chart(title, by_day, value, first, count) for title, value in kinds)
    tables = tuple(_table(name, lines, gpus, kept) for name, lines in by_name)
    days = tuple(
        Day(_date(line.day_us), f"{line.jobs:,}", hours(line.gpu_us), hours(line.cpu_us),
            hours(line.waited_us), hours(line.slowed_us), hours(line.saved_us))
        for line in sorted(by_day, key=lambda line: -line.day_us)
    )  # fmt: skip
    whole = _row("all", "", _total(by_day), 0) if by_day else None
    return Drawn(charts, tables, days, _waits(by_day), whole, gpus, saved)


def _waits(lines: Sequence[UsageLine]) -> tuple[Wait, ...]:
    """What jobs waited for until they had hosts, the longest first."""
    sums = {kind: sum(getattr(line, f"waited_{kind}_us") for line in lines) for kind in WAIT_KINDS}
    whole_us = sum(sums.values())
    return tuple(
        Wait(kind, hours(us), round(100 * us / whole_us, 1))
        for kind, us in sorted(sums.items(), key=lambda one: -one[1])
        if us
    )


def _chart(title: str, lines: Sequence[UsageLine], value: Value, first: int, count: int) -> Chart:
    values = [0] * count
    for line in lines:
        at = line.day_us // DAY_US - first
        if 0 <= at < count:
            values[at] += value(line)
    top = max(values)
    room = WIDTH / count
    wide = round(room * 0.8, 2)
    bars = "".join(
        f"M{number * room:.2f} {HEIGHT * (1 - one / top):.2f}h{wide}V{HEIGHT:g}h{-wide}z"
        for number, one in enumerate(values)
        if one > 0
    )
    total = hours(sum(values))
    most = _date((first + values.index(top)) * DAY_US)
    says = f"{total} h in {count} days; most on {most}: {hours(top)} h" if top else "none"
    return Chart(title, bars, hours(top), total, says)


def _table(name: str, lines: Sequence[UsageLine], gpus: bool, kept: dict[str, str]) -> Table:
    def size(line: UsageLine) -> tuple[int, int]:
        return (line.gpu_us if gpus else line.cpu_us, line.waited_us)

    ordered = sorted(lines, key=size, reverse=True)
    widest = max((size(line)[0] for line in ordered), default=0)
    rows = []
    for line in ordered[:ROWS_MOST]:
        named = getattr(line, name)
        only = urlencode({**kept, name: named}) if named and name not in kept else ""
        share = round(100 * size(line)[0] / widest, 1) if widest else 0.0
        rows.append(_row(shown(named) or "–", only, line, share))
    return Table(name, heading(name), tuple(rows), max(0, len(ordered) - ROWS_MOST))


def _row(name: str, only: str, line: UsageLine, share: float) -> Row:
    busy = f"{100 * line.gpu_busy_us / line.gpu_watched_us:.0f} %" if line.gpu_watched_us else "–"
    waited = hours(line.waited_us)
    return Row(
        name, only, share, f"{line.jobs:,}", hours(line.gpu_us), busy, hours(line.cpu_us), waited,
        hours(line.slowed_us), hours(line.saved_us),
    )  # fmt: skip


def _total(lines: Sequence[UsageLine]) -> UsageLine:
    names = [name for name in UsageLine.__struct_fields__ if isinstance(getattr(lines[0], name), int)]
    sums = {name: sum(getattr(line, name) for line in lines) for name in names}
    return UsageLine(**{**sums, "day_us": 0})


def hours(us: int) -> str:
    """`0`, `<0.001`, `0.04`, `3.1`, `410`, `12,345`."""
    value = us / HOUR_US
    if not us:
        return "0"
    if value < 0.001:
        return "<0.001"
    return f"{value:.2g}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _date(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d")
