"""A MaDDash server: its grids, and the history of each check in them.

GET <server>/maddash/grids            {grids: [{name, uri}]}
GET <grid>                            {rows, columnNames, checkNames, grid: [row][column][check]}
GET <check>                           {history: [{time, returnCode, message, returnParams: {Average, …}}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rm.adapters.sources.asking import Archive, Found, Span, Tries
from rm.core.monitoring.metrics import METRIC_OF
from rm.errors import Unreachable
from rm.units import SECOND_US

UNKNOWN = 3
# words of a check's name -> metric, and what its average is in when the message does not say
METRICS = (
    (("loss",), "loss_pct", 1.0),
    (("throughput", "bandwidth"), "bandwidth_bps", 1e9),
    (("rtt", "round trip"), "rtt_us", 1e3),
    (("latency", "delay"), "delay_us", 1e3),
    (("mtu",), "mtu_bytes", 1.0),
)
UNITS = {
    "bandwidth_bps": {"gbps": 1e9, "gbit/s": 1e9, "gb/s": 1e9, "mbps": 1e6, "mbit/s": 1e6, "mb/s": 1e6},
    "delay_us": {"us": 1.0, "ms": 1e3, "s": 1e6},
    "rtt_us": {"us": 1.0, "ms": 1e3, "s": 1e6},
}
_UNIT = re.compile(r"[\d.]+\s*([a-zA-Z]+(?:/s)?)")


async def read(archive: Archive, span: Span) -> Found:
    found, tries = Found(), Tries(archive.source.mesh)
    checks: dict[str, tuple[str, str, str, float]] = {}
    answer = await archive.get(archive.at("/maddash/grids"))
    try:
        grids = [(str(g["name"]), str(g["uri"])) for g in answer["grids"]]
    except (KeyError, TypeError):
        raise _unlike(archive, answer) from None
    wanted = [uri for name, uri in grids if not archive.source.only or name in archive.source.only]
    for name in archive.source.only:
        if name not in dict(grids):
            found.say(f"MaDDash {archive.source.name} has no grid '{name}'.")

    async def list_checks(uri: str) -> None:
        grid = await archive.get(archive.at(uri))
        try:
            for uri, row, column, name in _cells(grid, span.since_us):
                kind = _kind(name)
                source, destination = span.host(row), span.host(column)
                if not source or not destination or source == destination:
                    found.strangers += 1
                elif kind is not None:
                    ends = (destination, source) if "reverse" in name.lower() else (source, destination)
                    checks[archive.at(uri)] = (*ends, *kind)
        except (AttributeError, KeyError, TypeError, IndexError, ValueError, OverflowError):
            raise _unlike(archive, grid) from None

    async def read_check(url: str) -> None:
        source, destination, metric, unit = checks[url]
        check = await archive.get(url)
        try:
            history = list(check["history"])
        except (KeyError, TypeError):
            raise _unlike(archive, check) from None
        for item in history:
            try:
                at_us = int(item["time"]) * SECOND_US
                if span.since_us < at_us <= span.until_us:
                    said = str(item.get("message") or "")
                    average = (item.get("returnParams") or {}).get("Average")
                    if average is not None:
                        value = float(average) * _unit(said, metric, unit)
                        tries.add(source, destination, at_us, {metric: value})
                    elif int(item["returnCode"]) == UNKNOWN:
                        about = [c for c, m in METRIC_OF.items() if m == metric]
                        tries.fail(source, destination, at_us, said or "nothing was measured", about)
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                found.misread(f"A result from {source} to {destination} cannot be read: {item!r:.80}.")

    await archive.each(wanted, list_checks, found)
    await archive.each(sorted(checks), read_check, found)
    tries.into(found)
    return found


def _cells(grid: Any, since_us: int) -> Iterator[tuple[str, str, str, str]]:
    """(uri, row, column, check) of what was checked since."""
    rows, columns, names = grid["rows"], grid["columnNames"], grid["checkNames"]
    for row, cells in zip(rows, grid["grid"], strict=True):
        for column, checks in zip(columns, cells, strict=True):
            for name, check in zip(names, checks or (), strict=False):
                if (
                    check is not None
                    and check.get("uri")
                    and int(check["prevCheckTime"]) * SECOND_US > since_us
                ):
                    yield str(check["uri"]), str(row["name"]), str(column), str(name)


def _kind(name: str) -> tuple[str, float] | None:
    """The metric that a check of this name is about, and its usual unit."""
    lowered = name.lower()
    for words, metric, unit in METRICS:
        if any(word in lowered for word in words):
            return metric, unit
    return None


def _unit(message: str, metric: str, usual: float) -> float:
    for word in _UNIT.findall(message):
        if word.lower() in UNITS.get(metric, {}):
            return UNITS[metric][word.lower()]
    return usual


def _unlike(archive: Archive, answer: Any) -> Unreachable:
    return Unreachable(f"Archive {archive.source.name} does not answer as MaDDash does: {answer!r:.80}.")
