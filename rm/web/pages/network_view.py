"""Hosts by zone, and the grid of what was measured between them, in MaDDash's manner.

A cell is one direction, the row's host to the column's. For each check it has a status: its letter and
colour, and the value. Statuses are those of the meshes that test the pair; a pair that no mesh tests is
judged by the thresholds of the mesh that there is when rm.toml names none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rm.core.cells import Status, judge
from rm.core.mesh import usual
from rm.units import HOUR_US, MINUTE_US, format_bytes
from rm.web.pages.text import duration, percent, rate, short_rate, shown

USUAL = usual(MINUTE_US, HOUR_US, 1)[0].thresholds
METRICS = {"loss": "loss_pct", "delay": "delay_us", "bandwidth": "bandwidth_bps"}
VALUES_MOST = 10  # hosts of a grid that shows the numbers, too
SHOWN_MOST = 24  # hosts of a grid that is shown without being asked for
LARGEST = 128  # hosts of a grid, at all
WORST_FIRST = (Status.CRITICAL, Status.WARN, Status.UNKNOWN, Status.MAINTENANCE, Status.OK, Status.NOT_RUN)
Pair = Mapping[str, Any]
Cells = Mapping[tuple[str, str, str], Mapping[str, Any]]  # (check, source, destination) of the meshes


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str  # a word, which is also the style's name
    letter: str
    value: str


@dataclass(frozen=True, slots=True)
class GridCell:
    """`says` is all of it in words."""

    checks: tuple[Check, ...]
    says: str


@dataclass(frozen=True, slots=True)
class Grid:
    """`rows` are (host, cells), None where a host meets itself; `values`: is there room for numbers?"""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridCell | None, ...]], ...]
    values: bool
    left_out: int


@dataclass(frozen=True, slots=True)
class HostRow:
    name: str
    state: str
    cpus: str
    memory: str
    gpus: str
    link: str
    jobs: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ZoneView:
    """`worst` counts the cells by status; `grid` None: it is large and was not asked for."""

    name: str
    key: str
    hosts: tuple[HostRow, ...]
    worst: tuple[tuple[Status, int], ...]
    grid: Grid | None
    count: int


def worst_of(told: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """The meshes' cells by check and direction; of several that test the same, the worst."""
    found: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for cell in told:
        key = cell["check"], cell["source"], cell["destination"]
        known = found.get(key)
        if known is None or _rank(cell) < _rank(known):
            found[key] = cell
    return found


def _rank(cell: Mapping[str, Any]) -> int:
    return WORST_FIRST.index(Status(cell["status"]))


def zones(
    hosts: Sequence[Mapping[str, Any]], pairs: Iterable[Pair], cells: Cells, wanted: str = ""
) -> tuple[list[ZoneView], Grid | None]:
    """Each zone with its grid, and the grid between zones. `wanted`: show this zone's, however large."""
    zone_of = {host["name"]: host["zone"] for host in hosts}
    members: dict[str, list[Mapping[str, Any]]] = {}
    for host in hosts:
        members.setdefault(host["zone"], []).append(host)
    known: dict[tuple[str, str], GridCell] = {}
    between: dict[tuple[str, str], list[GridCell]] = {}
    statuses: dict[str, dict[Status, int]] = {zone: {} for zone in members}
    for pair in pairs:
        source, destination = pair["source"], pair["destination"]
        here, there = zone_of.get(source), zone_of.get(destination)
        if here is None or there is None:
            continue  # measured when that host was still known
        made, worst = cell(pair, cells)
        known[source, destination] = made
        if here == there:
            statuses[here][worst] = statuses[here].get(worst, 0) + 1
        else:
            between.setdefault((here, there), []).append(made)
    found = []
    for number, (zone, these) in enumerate(members.items()):
        names = [host["name"] for host in these]
        asked = zone == wanted or len(names) <= SHOWN_MOST
        found.append(
            ZoneView(
                name=shown(zone),
                key=f"zone-{number}",
                hosts=tuple(host_row(host) for host in these),
                worst=tuple((s, statuses[zone][s]) for s in WORST_FIRST if s in statuses[zone]),
                grid=grid(f"grid-{number}", f"Inside zone {shown(zone)}", names, known) if asked else None,
                count=len(names),
            )
        )
    across = {key: _worst(made) for key, made in between.items()}
    over = grid("grid-zones", "Between zones, the worst pair of each", list(members), across)
    return found, over if across else None


def grid(key: str, title: str, names: Sequence[str], known: Mapping[tuple[str, str], GridCell]) -> Grid:
    drawn = names[:LARGEST]
    never = GridCell(tuple(Check(name, "not-run", Status.NOT_RUN.letter, "") for name in METRICS), "")
    return Grid(
        key=key,
        title=title,
        columns=tuple(shown(name, 40) for name in drawn),
        rows=tuple(
            (shown(a, 40), tuple(None if a == b else _named(known.get((a, b), never), a, b) for b in drawn))
            for a in drawn
        ),
        values=len(drawn) <= VALUES_MOST,
        left_out=len(names) - len(drawn),
    )


def _named(made: GridCell, source: str, destination: str) -> GridCell:
    said = made.says or "never measured"
    return GridCell(made.checks, f"{shown(source, 40)} to {shown(destination, 40)}: {said}")


def cell(pair: Pair, cells: Cells) -> tuple[GridCell, Status]:
    """The cell of one direction, and the worst status in it."""
    checks, said, found = [], [], []
    failed = f"{pair['failures']} tries in a row failed" if pair.get("failures") else ""
    for check, field in METRICS.items():
        value = pair[field]
        told = cells.get((check, pair["source"], pair["destination"]))
        if told is not None and told["status"] != Status.NOT_RUN:
            status, message = Status(told["status"]), str(told["message"])
        elif value is None and not failed:
            status, message = Status.NOT_RUN, f"{check} not measured"
        elif failed:
            status, message = Status.UNKNOWN, f"{check}: {failed}"
        else:
            status, message = judge(check, value, "", USUAL)
        word = status.word
        if told is not None and told.get("result", told["status"]) != told["status"]:
            tries = f"{told['streak']} tries" if told["streak"] > 1 else "try"
            word += f", in the last {tries} {Status(told['result']).word}"
        checks.append(Check(check, status.word.replace(" ", "-"), status.letter, _value(check, value)))
        said.append(f"{shown(message, 200)} ({word})")
        found.append(status)
    age = pair.get("age_us")
    said.append("never measured" if age is None else f"measured {duration(age // 1_000_000 * 1_000_000)} ago")
    return GridCell(tuple(checks), "; ".join(said)), min(found, key=WORST_FIRST.index)


def _value(check: str, value: Any) -> str:
    if value is None:
        return "–"
    if check == "loss":
        return percent(value)
    return duration(value) if check == "delay" else short_rate(value)


def _worst(made: Sequence[GridCell]) -> GridCell:
    """One cell for many pairs: the one whose checks are worst."""
    rank = {status.word.replace(" ", "-"): i for i, status in enumerate(WORST_FIRST)}
    return min(made, key=lambda one: sorted(rank[check.status] for check in one.checks))


def host_row(host: Mapping[str, Any]) -> HostRow:
    free = host.get("free")
    gpus = len(host["gpus"])
    return HostRow(
        name=shown(host["name"]),
        state=host["state"],
        cpus=f"{free['cpus']} of {host['cpus']}" if free else str(host["cpus"]),
        memory=(f"{format_bytes(free['mem_bytes'])} of " if free else "") + format_bytes(host["mem_bytes"]),
        gpus="–" if not gpus else f"{len(free['gpus'])} of {gpus}" if free else str(gpus),
        link=rate(host["nic_bps"]) if host["nic_bps"] else "–",
        jobs=tuple(host.get("jobs") or ()),
        reason=shown(
            host["reason"] if host["state"] == "DOWN" else host["drained_by"] or host["reason"], 300
        ),
    )
