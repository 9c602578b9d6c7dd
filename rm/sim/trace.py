"""A trace of a production cluster as a batch workload: who came when, with how many GPUs, and for how long.

The form is Microsoft's Philly trace as prepared for Pollux: a CSV file with the columns timestamp,
duration (seconds), num_gpus and cluster. It has no time limits, so users' guesses are drawn: the f-model of
A. Mu'alem and D. Feitelson (IEEE TPDS 2001), a limit between once and (1 + f) times the run time, each as
likely, rounded up to whole half hours.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.errors import UsageError
from rm.sim.batch import Batch, Played, Stay, Work, hosts_of
from rm.sim.real.workloads import workload

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
HALF_HOUR_US = 1_800_000_000
LEAST_US = 1_000_000
LONGEST_S = 10 * 366 * 86_400
CPUS = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """`hosts` with `gpus` each; `badness` is the f of the f-model; of every `ask_each`-th job it is asked
    when it is expected to start."""

    hosts: int
    gpus: int = 8
    cluster: str = ""
    badness: float = 4.0
    seed: int = 1
    ask_each: int = 10


@dataclass(frozen=True, slots=True)
class Waits:
    """Under one policy. Times in seconds; `utilisation` until the last submission. Of the `asked` jobs whose
    start was foreseen: how far it was from the time said if all use up their limits, and from the likely one,
    in the middle of them. Of those for which an interval was said (too few have ended for the first ones):
    which part started between the soonest and the latest, and which before and after; and how long that is,
    in the middle of them."""

    jobs: int
    mean_s: float
    median_s: float
    p95_s: float
    utilisation: float
    asked: int
    latest_error_s: float
    likely_error_s: float
    within: float
    before: float
    after: float
    interval_s: float


def read(path: Path, settings: Settings) -> list[Work]:
    """The jobs that fit the cluster.

    Raises:
        UsageError: the file cannot be read, or is no such trace.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"The trace {path} cannot be read: {problem}.") from None
    if not rows or any(name not in rows[0] for name in COLUMNS):
        raise UsageError(f"{path} is no trace.", f"It needs the columns {', '.join(COLUMNS)}.")
    found: list[tuple[float, float, int]] = []
    for line, row in enumerate(rows, 2):
        try:
            if row["cluster"] is None:
                raise ValueError("it has fewer columns than the first line")
            if not settings.cluster or row["cluster"] == settings.cluster:
                found.append(_read_row(row))
        except (ValueError, OverflowError) as problem:
            raise UsageError(f"{path}, line {line}: {problem}.") from None
    found = [one for one in sorted(found) if one[2] <= settings.hosts * settings.gpus]
    if not found:
        raise UsageError(f"{path} has no job of cluster '{settings.cluster:.80}' that fits these hosts.")
    return [_work(one, found[0][0], index, settings) for index, one in enumerate(found)]


def carried(name: str, settings: Settings) -> list[Work]:
    """The jobs of a sample of the Philly trace that comes with rm, as `rm.sim.real.workloads` names it."""
    rows = sorted((one.at_s, one.runs_s or 0.0, one.kind.gpus) for one in workload(name))
    rows = [one for one in rows if one[2] <= settings.hosts * settings.gpus]
    if not rows:
        raise UsageError(f"No job of {name} fits these hosts.", "Give more --hosts or --gpus.")
    return [_work(one, rows[0][0], index, settings) for index, one in enumerate(rows)]


def _read_row(row: Mapping[str, str | None]) -> tuple[float, float, int]:
    """(when, for how many seconds, GPUs). Raises ValueError and OverflowError."""
    at, lasts, count = (row[name] or "" for name in COLUMNS[:3])
    lasts_s, gpus = float(lasts), int(count)
    if not 0 <= lasts_s <= LONGEST_S:
        raise ValueError(f"the duration is {lasts}; write 0 to {LONGEST_S} seconds")
    if gpus < 1:
        raise ValueError(f"num_gpus is {gpus}; write 1 or more")
    return datetime.fromisoformat(at).timestamp(), lasts_s, gpus


def play(works: Sequence[Work], queue: str, depth: int, settings: Settings) -> Waits:
    """Under one queue policy; `depth` is for those that have one, and 0 for the others."""
    options = {"depth": depth} if depth else None
    policies = Policies(load("queue", queue, options), load("placement", "zone"), load("comm", "none"))
    hosts = hosts_of(settings.hosts, settings.gpus, CPUS * settings.gpus)
    return waits_of(Batch(hosts, policies, ask_each=settings.ask_each).play(works))


def waits_of(played: Played) -> Waits:
    waits = sorted(wait for one in played.stays if (wait := one.wait_us) is not None)
    last_us = max(one.work.at_us for one in played.stays)
    told = [one for one in played.stays if one.expected_us is not None and one.start_us is not None]
    between = [one for one in told if _interval_us(one)]
    likely, latest = (sorted(abs(_off(one, which)) for one in told) for which in (1, 3))
    return Waits(
        len(waits),
        _mean(waits) / 1e6,
        _at(waits, 0.5) / 1e6,
        _at(waits, 0.95) / 1e6,
        played.utilisation(max(1, last_us)),
        len(told),
        _at(latest, 0.5) / 1e6,
        _at(likely, 0.5) / 1e6,
        _part(between, 0),
        _part(between, -1),
        _part(between, 1),
        _at(sorted(_interval_us(one) for one in between), 0.5) / 1e6,
    )


def _off(one: Stay, which: int) -> int:
    """How much later than one of the times that were said; negative: sooner."""
    assert one.expected_us is not None
    assert one.start_us is not None
    return one.start_us - one.expected_us[which]


def _part(told: Sequence[Stay], side: int) -> float:
    return sum(_side(one) == side for one in told) / max(1, len(told))


def _side(one: Stay) -> int:
    """Did it start before the soonest time (-1), after the latest (1), or between (0)?"""
    return -1 if _off(one, 0) < 0 else int(_off(one, 2) > 0)


def _interval_us(one: Stay) -> int:
    assert one.expected_us is not None
    return one.expected_us[2] - one.expected_us[0]


def _mean(values: Sequence[int]) -> float:
    return sum(values) / max(1, len(values))


def _at(ordered: Sequence[int], part: float) -> int:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


def _work(row: tuple[float, float, int], start_s: float, index: int, settings: Settings) -> Work:
    at_s, lasts_s, gpus = row
    run_us = max(LEAST_US, round(lasts_s * 1e6))
    guess = run_us * random.Random(f"{settings.seed}/{index}").uniform(1.0, 1.0 + settings.badness)
    limit_us = -(-round(guess) // HALF_HOUR_US) * HALF_HOUR_US
    spec = JobSpec(
        f"job{index}", "user", "#!/bin/sh\ntrue\n", ntasks=gpus, gpus_per_task=1, time_limit_us=limit_us
    )
    return Work(round((at_s - start_s) * 1e6), run_us, spec)
