"""The history of one direction between two hosts: a chart for each metric, with its statuses above.

Single tries are drawn as a line, or where they are many as the least to the most of each piece of time
with the mean in it, as summaries are. Failed tries are marked below. Time runs to the right.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm.api.monitoring import Change, Mesh
from rm.api.network import History, Known, Sample, Summary
from rm.core.monitoring.cells import Status
from rm.core.monitoring.metrics import METRIC_OF, METRICS, Unit
from rm.web.pages.grid_view import Tested
from rm.web.pages.text import duration, moment, percent, rate, shown, since

SPANS_S = {"1h": 3_600, "24h": 86_400, "14d": 14 * 86_400, "1y": 365 * 86_400}
USUAL = "24h"
WIDTH, HEIGHT = 600.0, 64.0
PIECES = 150  # of the width, for what is too much to be drawn one by one
CHANGES_MOST = 100
# from what on a check is bad: the thresholds' names and what they are counted in
LIMITS = {
    "loss": ("loss_{}_pct", 1.0),
    "delay": ("delay_{}_ms", 1e3),
    "delay_p95": ("delay_p95_{}_ms", 1e3),
    "jitter": ("jitter_{}_ms", 1e3),
    "clock": ("clock_{}_ms", 1e3),
    "bandwidth": ("bandwidth_{}_mbps", 1e6),
    "mtu": ("mtu_{}_bytes", 1.0),
    "trace": ("trace_{}_hops", 1.0),
    "dns": ("dns_{}_ms", 1e3),
    "http": ("http_{}_ms", 1e3),
}
SHOWN: Mapping[Unit, Callable[[float | None], str]] = {
    Unit.PERCENT: percent,
    Unit.MICROSECONDS: duration,
    Unit.BITS_PER_SECOND: rate,
    Unit.HOPS: lambda value: "–" if value is None else f"{value:.0f} hops",
    Unit.BYTES: lambda value: "–" if value is None else f"{value:.0f} bytes",
}
Point = tuple[int, float, float, float]  # instant, least, mean, most


@dataclass(frozen=True, slots=True)
class Band:
    """A status from `x` on for `width`."""

    x: float
    width: float
    status: str


@dataclass(frozen=True, slots=True)
class Limit:
    y: float
    status: str


@dataclass(frozen=True, slots=True)
class MetricChart:
    """`line` and `area` are paths ("" = none); `failed` where tries failed; `bands` the check's statuses."""

    title: str
    line: str
    area: str
    dots: tuple[tuple[float, float], ...]
    failed: tuple[float, ...]
    limits: tuple[Limit, ...]
    bands: tuple[Band, ...]
    newest: str
    least: str
    mean: str
    most: str
    says: str


@dataclass(frozen=True, slots=True)
class PairView:
    """`changes` are (when, check, status before, status after, why), the newest first."""

    source: str
    destination: str
    since: str
    checks: tuple[tuple[str, str, str, str], ...]  # check, status, letter, what is to be said
    age: str
    confidence: str
    charts: tuple[MetricChart, ...]
    ticks: tuple[tuple[float, str], ...]
    tries: str
    changes: tuple[tuple[str, str, str, str, str], ...]


def pair(
    told: History,
    since_word: str,
    meshes: Sequence[Mesh],
    cells: Sequence[Tested],
    changes: Sequence[Change],
    now_us: int,
) -> PairView:
    """`told` is the answer of the history, `cells` those of the meshes that test this direction, and
    `changes` those of their statuses."""
    span_us = SPANS_S[since_word] * 1_000_000
    begin_us = now_us - span_us
    samples, summaries = told.samples, told.summaries
    changes = sorted(changes, key=lambda change: change.at_us)
    mine = {one.cell.check: one for one in cells}
    charts = []
    for metric in METRICS:
        check, words = metric.check, SHOWN[metric.unit]
        title = metric.title[:1].upper() + metric.title[1:]
        points = _points(samples, summaries, metric.name)
        failures = [s.at_us for s in samples if s.failed and check in _checks(s, meshes)]
        if check == "loss":  # summaries do not have the failures
            failures += [s.start_us + s.span_us // 2 for s in summaries if s.failures]
        if not points and not (failures and check):
            continue
        cell = mine.get(check)
        limits = _limits(check, cell, meshes) if check else {}
        these = [c for c in changes if check and c.check == check]
        charts.append(
            _chart(title, words, points, failures, limits, these, cell, begin_us, now_us, bool(summaries))
        )
    now = told.now or Known()
    age_us = now.age_us
    return PairView(
        source=told.source,
        destination=told.destination,
        since=since_word,
        checks=tuple(_status(mine[check]) for check in METRIC_OF if check in mine),
        age="never measured" if age_us is None else f"measured {since(1, 1 + age_us)} ago",
        confidence="" if now.confidence is None else f"confidence {now.confidence:.0%}",
        charts=tuple(charts),
        ticks=tuple((round(WIDTH * i / 4, 1), _tick(begin_us + span_us * i // 4, span_us)) for i in range(5)),
        tries=_tries(samples, summaries),
        changes=tuple(_change(c) for c in reversed(changes[-CHANGES_MOST:])),
    )


def _checks(sample: Sample, meshes: Iterable[Mesh]) -> Sequence[str]:
    """What a try looked for: by its record, or by its mesh as of now."""
    return sample.checks or next((mesh.checks for mesh in meshes if mesh.name == sample.mesh), ())


def _tick(at_us: int, span_us: int) -> str:
    """As short as the span allows."""
    days = span_us / 1e6 / SPANS_S["24h"]
    shape = "%H:%M" if days < 2 else "%m-%d" if days < 100 else "%Y-%m-%d"
    return time.strftime(shape, time.localtime(at_us / 1e6))


def _status(one: Tested) -> tuple[str, str, str, str]:
    status, cell = one.status, one.cell
    began = f", since {moment(cell.since_us)}" if cell.since_us else ""
    check, message = cell.check, shown(cell.message, 200)
    said = message if message.lower().startswith(check) else f"{check}: {message}"
    return check, _style(status), status.letter, said + began


def _style(status: Status) -> str:
    return status.word.replace(" ", "-")


def _change(told: Change) -> tuple[str, str, str, str, str]:
    return (
        moment(told.at_us),
        shown(told.check),
        Status(told.was).word,
        Status(told.status).word,
        shown(told.message, 200),
    )


def _tries(samples: Sequence[Sample], summaries: Sequence[Summary]) -> str:
    tries = len(samples) + sum(s.tries for s in summaries)
    failures = sum(bool(s.failed) for s in samples) + sum(s.failures for s in summaries)
    if not tries:
        return ""
    each = "hour" if summaries and summaries[0].span_us <= SPANS_S["1h"] * 1_000_000 else "day"
    how = f", least, mean and most of each {each}" if summaries else ""
    return f"{tries} tries, {failures} failed{how}"


def _points(samples: Sequence[Sample], summaries: Sequence[Summary], key: str) -> list[Point]:
    found = [(s.at_us, v, v, v) for s in samples if (v := s.values.get(key)) is not None]
    for one in summaries:
        stat = one.stats.get(key)
        if stat is not None:
            found.append((one.start_us + one.span_us // 2, stat.min, stat.mean, stat.max))
    return found


def _limits(check: str, cell: Tested | None, meshes: Iterable[Mesh]) -> dict[Status, float]:
    """The thresholds of the mesh that tests the direction, in the metric's unit."""
    of = next((m for m in meshes if cell is not None and m.name == cell.mesh), None)
    if of is None:
        return {}
    name, factor = LIMITS[check]
    found = {
        status: of.thresholds[name.format(status.word)] * factor for status in (Status.WARN, Status.CRITICAL)
    }
    return {status: value for status, value in found.items() if value}


def _chart(
    title: str,
    words: Callable[[float | None], str],
    points: Sequence[Point],
    failures: Sequence[int],
    limits: Mapping[Status, float],
    changes: Sequence[Change],
    cell: Tested | None,
    begin_us: int,
    now_us: int,
    summed: bool,
) -> MetricChart:
    most = max((p[3] for p in points), default=0.0)
    # a limit far above all values would flatten them
    near = [value for value in limits.values() if value <= 4 * most]
    top = 1.1 * max([most, *near]) or 1.0

    def at(us: int) -> float:
        return round(WIDTH * min(max(us - begin_us, 0), now_us - begin_us) / (now_us - begin_us), 1)

    def up(value: float) -> float:
        return round(HEIGHT * (1 - min(1.0, max(0.0, value / top))), 1)

    drawn = pieces(points, begin_us, now_us) if len(points) > PIECES else list(points)
    spread = summed or len(points) > PIECES
    xy = [(at(us), up(mean)) for us, _, mean, _ in drawn]
    line = "M" + "L".join(f"{x} {y}" for x, y in xy) if len(xy) > 1 else ""
    area = ""
    if spread and len(drawn) > 1:
        over = [f"{at(us)} {up(high)}" for us, _, _, high in drawn]
        under = [f"{at(us)} {up(low)}" for us, low, _, _ in reversed(drawn)]
        area = "M" + "L".join([*over, *under]) + "Z"
    least = min((p[1] for p in points), default=None)
    mean = math.fsum(p[2] for p in points) / len(points) if points else None
    highest = most if points else None
    newest = points[-1][2] if points else None
    said = f"{title}: newest {words(newest)}, from {words(least)} to {words(highest)}, {len(failures)} failed"
    return MetricChart(
        title=title,
        line=line,
        area=area,
        dots=tuple(xy) if len(xy) <= 60 and not spread else (),
        failed=tuple(dict.fromkeys(at(us) for us in failures)),
        limits=tuple(Limit(up(value), _style(s)) for s, value in limits.items() if value <= top),
        bands=bands(changes, cell, begin_us, now_us, at),
        newest=words(newest),
        least=words(least),
        mean=words(mean),
        most=words(highest),
        says=said,
    )


def pieces(points: Sequence[Point], begin_us: int, end_us: int) -> list[Point]:
    """Many points as at most PIECES, each with the least, the mean and the most of its time."""
    found: dict[int, list[Point]] = {}
    for point in points:
        found.setdefault((point[0] - begin_us) * PIECES // (end_us - begin_us), []).append(point)
    return [
        (
            sum(p[0] for p in group) // len(group),
            min(p[1] for p in group),
            math.fsum(p[2] for p in group) / len(group),
            max(p[3] for p in group),
        )
        for _, group in sorted(found.items())
    ]


def bands(
    changes: Sequence[Change], cell: Tested | None, begin_us: int, now_us: int, at: Callable[[int], float]
) -> tuple[Band, ...]:
    """The statuses of a check in time, by its changes; without any the present one."""
    told = [(c.at_us, Status(c.was), Status(c.status)) for c in changes]
    edges: list[tuple[int, Status]] = []
    if told:
        edges = [(begin_us, told[0][1]), *((us, status) for us, _, status in told)]
    elif cell is not None and cell.status != Status.NOT_RUN:
        edges = [(max(begin_us, cell.cell.since_us or 0), cell.status)]
    found = []
    for (us, status), (until_us, _) in itertools.pairwise([*edges, (now_us, Status.NOT_RUN)]):
        x, end = at(us), at(until_us)
        if end > x and status is not Status.NOT_RUN:
            found.append(Band(x, round(end - x, 1), _style(status)))
    return tuple(found)
