"""The network in the terminal: the grid in MaDDash's colours, and histories as sparklines."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from rm.cli.output import printable

OK, WARN, CRITICAL, UNKNOWN, NOT_RUN, MAINTENANCE = range(6)
WORDS = ("ok", "warn", "critical", "unknown", "not run", "maintenance")
LETTERS = ("o", "w", "C", "?", ".", "m")
# green, yellow, red; what is not known, not run or maintained is grey, darker in this order
COLOURS: tuple[dict[str, Any], ...] = (
    {"fg": "green"},
    {"fg": "yellow"},
    {"fg": "red"},
    {"fg": "white", "dim": True},
    {"fg": "bright_black"},
    {"fg": "bright_black", "dim": True},
)
WORST_FIRST = (CRITICAL, WARN, UNKNOWN, MAINTENANCE, OK, NOT_RUN)
BLOCK = "■"
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 60
Pair = tuple[str, str]


def words(status: int) -> str:
    return WORDS[status] if 0 <= status < len(WORDS) else str(status)


def worst(statuses: Iterable[int]) -> int:
    found = set(statuses)
    return next((s for s in WORST_FIRST if s in found), NOT_RUN)


def colourful() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def mark(status: int, colour: bool) -> str:
    return click.style(BLOCK, **COLOURS[status]) if colour else LETTERS[status]


def draw(zone_of: Mapping[str, str], cells: Mapping[Pair, int], colour: bool, width: int = 0) -> str:
    """One grid per zone, sources down and destinations across, and one of the zones themselves.

    Args:
        zone_of: the zone of each host.
        cells: the status of each ordered pair, and of what a host tests by itself; what is not there is left
            empty.
    """
    width = width or shutil.get_terminal_size().columns
    zones: dict[str, list[str]] = {}
    for name, zone in zone_of.items():
        zones.setdefault(zone, []).append(name)
    parts = []
    for zone, names in zones.items():
        if len(names) > 1 or (names[0], names[0]) in cells:
            parts.append(f"zone {printable(zone)}\n" + _grid(names, cells, colour, width))
    between: dict[Pair, list[int]] = {}
    for (a, b), status in cells.items():
        if a in zone_of and b in zone_of and zone_of[a] != zone_of[b]:
            between.setdefault((zone_of[a], zone_of[b]), []).append(status)
    if between:
        folded = {pair: worst(statuses) for pair, statuses in between.items()}
        parts.append("between zones\n" + _grid(list(zones), folded, colour, width))
    return "\n\n".join(parts)


def _grid(names: Sequence[str], cells: Mapping[Pair, int], colour: bool, width: int) -> str:
    """Columns bear the numbers of the rows; as many at once as the width allows."""
    digits = len(str(len(names)))
    label = max(map(len, map(printable, names)))
    room = max(1, (width - digits - label - 2) // (digits + 1))
    lines: list[str] = []
    for first in range(0, len(names), room):
        columns = range(first, min(first + room, len(names)))
        if lines:
            lines.append("")
        lines.append(" " * (digits + label + 2) + " ".join(str(c + 1).rjust(digits) for c in columns))
        for row, source in enumerate(names):
            shown = []
            for c in columns:
                status = cells.get((source, names[c]))
                sign = " " if status is None else mark(status, colour)
                shown.append(" " * (digits - 1) + ("·" if row == c and status is None else sign))
            head = f"{str(row + 1).rjust(digits)} {printable(source).ljust(label)} "
            lines.append((head + " ".join(shown)).rstrip())
    return "\n".join(lines)


def legend(colour: bool) -> str:
    return "  ".join([*(f"{mark(s, colour)} {WORDS[s]}" for s in range(len(WORDS))), "blank: not tested"])


def sparkline(values: Sequence[float | None], width: int = SPARK_WIDTH) -> str:
    """The values as bars of eight heights between their least and their most; blank where there is none.

    More values than the width are folded: each bar is the worst (largest) of its share.
    """
    if len(values) > width:
        shares = [values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width)]
        values = [max((v for v in share if v is not None), default=None) for share in shares]
    known = [v for v in values if v is not None]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)
    top = len(SPARKS) - 1
    bars = [" " if v is None else SPARKS[round((v - low) / span * top) if span else 0] for v in values]
    return "".join(bars)
