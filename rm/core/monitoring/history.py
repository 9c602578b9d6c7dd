"""The history of the measured network: single tries, and what is left of them when they are old.

Tries are kept for days; of each hour, and then of each day, least, mean, most and count of every
metric are kept for long. So are the changes of the grid's statuses, of which old days keep the last
of each cell. The store keeps all behind the port `History`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rm.core.model.network.links import LinkStats
from rm.core.monitoring.cells import Cell, Change
from rm.core.monitoring.mesh import MeshState
from rm.core.monitoring.metrics import BY_NAME, METRIC_OF
from rm.units import DAY_US, HOUR_US

AHEAD_US = 60_000_000  # a clock may be ahead by so much
SPANS_US = (HOUR_US, DAY_US)


@dataclass(frozen=True, slots=True)
class Sample:
    """One try to measure one direction: what it found by metric, or why it failed.

    `mesh` is the mesh that it was made for, or names the archive that it came from. `checks` are those
    that it was made for, where that are not just those whose values it has.
    """

    source: str
    destination: str
    at_us: int
    mesh: str
    values: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""
    checks: tuple[str, ...] = ()


def checks_of(sample: Sample) -> tuple[str, ...]:
    """The checks of the grid that the try has a result for."""
    return sample.checks or tuple(check for check, metric in METRIC_OF.items() if metric in sample.values)


@dataclass(frozen=True, slots=True)
class Stat:
    """What is left of many values of one metric."""

    least: float
    mean: float
    most: float
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One direction during `span_us` from `start_us` on, all meshes together."""

    source: str
    destination: str
    start_us: int
    span_us: int
    stats: Mapping[str, Stat] = field(default_factory=dict)
    tries: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long single tries, hourly and daily summaries are kept; changes of statuses all for as long as
    hourly summaries, and the last of each cell and day for as long as daily ones."""

    raw_us: int = 2 * DAY_US
    hourly_us: int = 14 * DAY_US
    daily_us: int = 400 * DAY_US


class History(Protocol):
    """Every method raises StoreError when the database refuses; any thread may call."""

    def record(self, samples: Iterable[Sample]) -> int:
        """Keep them, in one transaction; a direction's try of the same mesh and instant is kept once.
        Returns how many were new."""
        ...

    def samples(
        self,
        source: str,
        destination: str,
        since_us: int = 0,
        until_us: int | None = None,
        mesh: str = "",
        limit: int | None = None,
    ) -> list[Sample]:
        """The newest `limit` tries from `since_us` until before `until_us`, in order of time."""
        ...

    def summaries(
        self, source: str, destination: str, span_us: int, since_us: int = 0, until_us: int | None = None
    ) -> list[Summary]:
        """Those that start from `since_us` until before `until_us`, in order of time."""
        ...

    def latest(self, mesh: str = "") -> list[Sample]:
        """The newest try of every direction, by source and destination."""
        ...

    def roll_up(self, now_us: int) -> int:
        """Summarise the hours and days that are over and not yet summarised; how many summaries were
        written. An hour in which something was recorded later is summarised again."""
        ...

    def prune(self, now_us: int, keep: Retention) -> int:
        """Forget what is older; how many rows. What is not yet summarised stays."""
        ...

    def cells(self, mesh: str = "") -> list[Cell]: ...

    def put_cells(self, new: Iterable[Cell], changes: Iterable[Change] = ()) -> None:
        """New versions of cells, whole, and what changed with them."""
        ...

    def changes(
        self,
        mesh: str = "",
        check: str = "",
        source: str = "",
        destination: str = "",
        since_us: int = 0,
        limit: int | None = None,
    ) -> list[Change]:
        """The newest `limit` changes of statuses from `since_us` on, in order of time; "" = any."""
        ...

    def mesh_states(self) -> list[MeshState]: ...
    def put_mesh_state(self, state: MeshState) -> None: ...
    def forget_mesh(self, mesh: str) -> None:
        """Forget its cells, their changes and its state; its samples stay."""
        ...

    def forget_host(self, host: str) -> None:
        """Forget all that was measured from it or to it: of a host of that name that comes later nothing
        is known. What of it is not found any more may leave the database later, by its age."""
        ...


def complaint(sample: Sample, now_us: int) -> str:
    """Why the sample cannot be true, as a sentence; "" when nothing speaks against it."""
    which = f"The measurement {sample.source} to {sample.destination} ({sample.mesh})"
    if sample.at_us <= 0 or sample.at_us > now_us + AHEAD_US:
        return f"{which} has a time in the future or before 1970: {sample.at_us} us."
    for name, value in sample.values.items():
        metric = BY_NAME.get(name)
        if metric is None:
            return f"{which} has a metric that rm does not know: '{name}'."
        number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if isinstance(value, bool) or not number:
            return f"{which} has a {name} that is not a number: {value!r:.40}."
        if not 0 <= value <= metric.largest:  # an integer may be too large for %g
            return f"{which} has an impossible {name}: {value!s:.20}, not between 0 and {metric.largest:g}."
    return ""


def learn(old: LinkStats | None, sample: Sample, fresh_us: int | None) -> LinkStats:
    """What is known of a direction after one more try; `fresh_us`: in how long the next one is to come
    (None = as it was before).

    What the try did not measure stays as it was, and goes on ageing. A try that found nothing is one
    more failure: the values stay, and confidence in them sinks.
    """
    known, values = old or LinkStats(), sample.values
    if not values:
        return replace(known, failures=known.failures + 1)
    if "loss_pct" in values:
        delay_us, jitter_us = values.get("delay_us"), values.get("jitter_us")
        known = replace(
            known,
            loss_pct=values["loss_pct"],
            delay_us=None if delay_us is None else round(delay_us),
            jitter_us=None if jitter_us is None else round(jitter_us),
            measured_at_us=sample.at_us,
            fresh_us=known.fresh_us if fresh_us is None else fresh_us,
        )
    if "bandwidth_bps" in values:
        known = replace(
            known,
            bandwidth_bps=round(values["bandwidth_bps"]),
            bandwidth_at_us=sample.at_us,
            bandwidth_fresh_us=known.bandwidth_fresh_us if fresh_us is None else fresh_us,
        )
    return replace(known, failures=0)


def summarise(samples: Iterable[Sample], span_us: int) -> list[Summary]:
    """Tries to summaries, by direction and span."""
    found: dict[tuple[str, str, int], list[Sample]] = {}
    for sample in samples:
        start_us = sample.at_us // span_us * span_us
        found.setdefault((sample.source, sample.destination, start_us), []).append(sample)
    return [_of_samples(*key, span_us, group) for key, group in sorted(found.items())]


def merge(summaries: Iterable[Summary], span_us: int) -> list[Summary]:
    """Summaries to summaries of a longer span, a multiple of theirs."""
    found: dict[tuple[str, str, int], list[Summary]] = {}
    for one in summaries:
        start_us = one.start_us // span_us * span_us
        found.setdefault((one.source, one.destination, start_us), []).append(one)
    return [
        Summary(*key, span_us, _merged(group), sum(s.tries for s in group), sum(s.failures for s in group))
        for key, group in sorted(found.items())
    ]


def _of_samples(source: str, destination: str, start_us: int, span_us: int, group: list[Sample]) -> Summary:
    values: dict[str, list[float]] = {}
    for sample in group:
        for name, value in sample.values.items():
            values.setdefault(name, []).append(value)
    stats = {n: Stat(min(v), math.fsum(v) / len(v), max(v), len(v)) for n, v in sorted(values.items())}
    failures = sum(1 for s in group if s.failed)
    return Summary(source, destination, start_us, span_us, stats, len(group), failures)


def _merged(group: Sequence[Summary]) -> dict[str, Stat]:
    merged = {}
    for name in sorted({n for s in group for n in s.stats}):
        stats = [s.stats[name] for s in group if name in s.stats]
        count = sum(s.count for s in stats)
        mean = math.fsum(s.mean * s.count for s in stats) / count
        merged[name] = Stat(min(s.least for s in stats), mean, max(s.most for s in stats), count)
    return merged
