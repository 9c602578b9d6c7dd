"""Numbers and names as people read them on the page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from rm.units import format_bandwidth

Look = Callable[[int], str]
MOST = 80  # characters of a name
COLOURS = 6  # times as many patterns
LOOKS_KEPT = 5_000


def shown(value: Any, most: int = MOST) -> str:
    """Foreign text: without control characters and changes of direction, and not without end."""
    text = "" if value is None else str(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def duration(us: float | None) -> str:
    """Three digits and a unit: `76 µs`, `97.3 ms`, `3.2 s`."""
    if us is None:
        return "–"
    sign, size = ("−", -us) if us < 0 else ("", us)
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if size >= factor:
            value = size / factor
            return f"{sign}{value:.0f} {unit}" if value >= 100 else f"{sign}{value:.3g} {unit}"
    return f"{sign}{size:.0f} µs"


def rate(bps: float | None) -> str:
    return "–" if bps is None else format_bandwidth(round(bps))


def short_rate(bps: float) -> str:
    """For a cell of the grid: `96M`, `1.2G`."""
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bps >= factor:
            value = bps / factor
            return f"{value:.0f}{unit}" if value >= 10 else f"{value:.2g}{unit}"
    return f"{bps:.0f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} %"


def moment(us: int | None) -> str:
    """Local time, with the date when it is not today's."""
    if us is None:
        return "–"
    then, today = time.localtime(us / 1e6), time.localtime()
    clock = time.strftime("%H:%M:%S", then)
    return clock if then[:3] == today[:3] else time.strftime("%Y-%m-%d ", then) + clock


def since(us: int | None, now_us: int) -> str:
    """How long ago, in its largest unit: `40 s`, `3 min`, `5 h`, `12 days`."""
    if not us:
        return "–"
    seconds = max(0, now_us - us) // 1_000_000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def look(job: int) -> str:
    """A colour and a pattern of a job; 36 different ones."""
    kind = job % (COLOURS * COLOURS)
    return f"{kind % COLOURS}-{(kind + kind // COLOURS) % COLOURS}"


class Looks:
    """The looks of jobs, the same wherever and as long as they are drawn.

    A job gets a colour that as few others as possible have when it is first seen.
    """

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def see(self, running: Iterable[int]) -> None:
        jobs = sorted(running)
        used = Counter(self._of[job][0] for job in jobs if job in self._of)
        for job in jobs:
            if job not in self._of:
                own = look(job)
                colour = min("012345", key=lambda c: (used[c], c != own[0]))
                used[colour] += 1
                self._of[job] = colour + own[1:]
        while len(self._of) > LOOKS_KEPT:
            del self._of[next(iter(self._of))]

    def __call__(self, job: int) -> str:
        return self._of.get(job) or look(job)
