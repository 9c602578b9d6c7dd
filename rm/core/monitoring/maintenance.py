"""Maintenance windows: when what is measured is not to be judged.

`sun 02:00-04:00`, `mon-fri 22:00-06:00` (over midnight: of the day on which it begins),
`daily 03:00-03:30`, or once: `2026-12-01T20:00/2026-12-02T06:00`, also with an offset such as +01:00.
Times without one are in the time zone that the caller gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from rm.core.model.host import Host, selected
from rm.errors import ConfigError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKLY = re.compile(r"(?P<days>[a-z,\-]+)\s+(?P<a>\d{1,2}):(?P<b>\d\d)\s*-\s*(?P<c>\d{1,2}):(?P<d>\d\d)")
MINUTES = 24 * 60
EXAMPLES = "Write 'sun 02:00-04:00', 'daily 03:00-03:30' or '2026-12-01T20:00/2026-12-02T06:00'."


@dataclass(frozen=True, slots=True)
class Window:
    """Weekly: `days` (0 = Monday) from minute `begins` of the day until `ends`, which is on the next
    day if it is not later. Once, if `once` is given."""

    text: str
    days: frozenset[int] = frozenset()
    begins: int = 0
    ends: int = 0
    once: tuple[datetime, datetime] | None = None

    def covers(self, now_us: int, zone: tzinfo) -> bool:
        now = datetime.fromtimestamp(now_us / 1e6, zone)
        if self.once is not None:
            first, last = (t if t.tzinfo else t.replace(tzinfo=zone) for t in self.once)
            return first <= now < last
        minute = now.hour * 60 + now.minute
        today, yesterday = now.weekday(), (now - timedelta(days=1)).weekday()
        if self.begins < self.ends:
            return today in self.days and self.begins <= minute < self.ends
        return (today in self.days and minute >= self.begins) or (
            yesterday in self.days and minute < self.ends
        )


@dataclass(frozen=True, slots=True)
class HostWindow:
    """A window of some hosts, in every mesh."""

    window: Window
    hosts: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()

    def covers(self, host: Host, now_us: int, zone: tzinfo) -> bool:
        return selected(host, self.hosts, self.zones) and self.window.covers(now_us, zone)


def parse_host_window(table: Mapping[str, Any]) -> HostWindow:
    """A table [[monitor.maintenance]].

    Raises:
        ConfigError: what is wrong with it.
    """
    for key in table:
        if key not in ("when", "hosts", "zones"):
            raise ConfigError(f"[[monitor.maintenance]] has no key '{key}'.", "Known: when, hosts, zones.")
    if not isinstance(table.get("when"), str):
        raise ConfigError("[[monitor.maintenance]] does not say when.", EXAMPLES)
    names = []
    for key in ("hosts", "zones"):
        value = table.get(key, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
            raise ConfigError(f"[[monitor.maintenance]], {key}: {value!r:.60} is not a list of names.")
        names.append(tuple(value))
    try:
        window = parse_window(table["when"])
    except ConfigError as error:
        raise ConfigError(f"[[monitor.maintenance]], when: {error.what}", error.hint) from None
    return HostWindow(window, *names)


def parse_window(text: str) -> Window:
    """Raises ConfigError."""
    stripped = text.strip()
    if "/" in stripped:
        return _once(stripped)
    match = _WEEKLY.fullmatch(stripped.lower())
    if match is None:
        raise ConfigError(f"'{text:.60}' is not a maintenance window.", EXAMPLES)
    a, b, c, d = (int(match[name]) for name in "abcd")
    if max(b, d) > 59 or a > 23 or c * 60 + d > MINUTES:
        raise ConfigError(f"'{text:.60}' has an invalid time of day.", EXAMPLES)
    return Window(stripped, _days(match["days"], text), a * 60 + b, c * 60 + d)


def _once(text: str) -> Window:
    try:
        first, last = (datetime.fromisoformat(part.strip()) for part in text.split("/"))
    except ValueError:
        raise ConfigError(f"'{text:.60}' is not a maintenance window.", EXAMPLES) from None
    if (first.tzinfo is None) != (last.tzinfo is None):
        raise ConfigError(f"'{text:.60}' has an offset on one side only.", EXAMPLES)
    if last <= first:
        raise ConfigError(f"'{text:.60}' ends before it begins.", EXAMPLES)
    return Window(text, once=(first, last))


def _days(text: str, whole: str) -> frozenset[int]:
    if text in ("daily", "*"):
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ConfigError(f"'{whole:.60}' names a day that does not exist.", f"Days: {', '.join(DAYS)}.")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found |= {(begin + i) % 7 for i in range((end - begin) % 7 + 1)}
    return frozenset(found)
