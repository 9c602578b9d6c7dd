"""A paper over seeds, in several processes; the result does not depend on how many."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path

from rm.errors import ConfigError
from rm.sim.papers.frame.expected import DIRECTORY, Expected, read
from rm.sim.papers.frame.find import load
from rm.sim.papers.frame.paper import Key, Paper, Result, Row, Sample, Series
from rm.sim.statistics import mean_std
from rm.sim.workers import workers

Found = tuple[Sample | Series, ...]
Unit = tuple[int, str]  # seed, part


def units_of(paper: Paper, seeds: int) -> list[Unit]:
    """The pieces of work, in the order in which they are begun: a whole seed comes before the next."""
    return [(seed, part) for seed in range(1, seeds + 1) for part in paper.parts]


def run(
    module: str,
    seeds: int | None = None,
    processes: int = 1,
    done: Callable[[], None] = lambda: None,
    expected: Path | None = None,
) -> Result:
    """Run the paper that `module` declares and compare it with its expected rows.

    Args:
        seeds: how many, from 1 on; None = the paper's own number.
        processes: 1 = in this one.
        done: called after each piece of work.
        expected: the file of expected rows; None = the one of the paper's name.

    Raises:
        ConfigError: expected rows and samples do not match.
    """
    paper = load(module)
    name = module.rpartition(".")[2].replace("_", "-")
    rows = read(expected or DIRECTORY / f"{name}.toml")
    units = units_of(paper, seeds or paper.seeds)
    found: dict[Unit, Found] = {}
    for unit, got in _carried_out(module, units, processes):
        found[unit] = got
        done()
    return _result(paper, rows, [found[unit] for unit in units])


def _carried_out(module: str, units: Sequence[Unit], processes: int) -> Iterator[tuple[Unit, Found]]:
    """Each piece of work with what it found, as they are done."""
    if min(processes, len(units)) <= 1:
        for unit in units:
            yield unit, _measure(module, unit)
        return
    with workers(min(processes, len(units))) as pool:
        running = {pool.submit(_measure, module, unit): unit for unit in units}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _measure(module: str, unit: Unit) -> Found:
    seed, part = unit
    return tuple(load(module).measure(part, seed))


def _result(paper: Paper, expected: dict[Key, Expected], found: Sequence[Found]) -> Result:
    values: dict[Key, list[float]] = {}
    series: dict[tuple[str, str], list[Series]] = {}
    size = len(paper.parts)
    for first in range(0, len(found), size):
        things = list(itertools.chain.from_iterable(found[first : first + size]))
        samples = [thing for thing in things if isinstance(thing, Sample)]
        for curve in things:
            if isinstance(curve, Series):
                series.setdefault((curve.figure, curve.case), []).append(curve)
        for sample in [*samples, *paper.derive(samples)]:
            values.setdefault(sample.key, []).append(float(sample.value))
    _match(expected, values)
    return Result(
        [_row(one, values[key]) for key, one in expected.items()],
        {key: tuple(got) for key, got in values.items()},
        {key: tuple(got) for key, got in series.items()},
    )


def _match(expected: Collection[Key], values: dict[Key, list[float]]) -> None:
    for key in expected:
        if key not in values:
            raise ConfigError(f"Nothing was measured for the expected row {' / '.join(key)}.")
    for key, got in values.items():
        if key not in expected:
            raise ConfigError(f"There is no expected row for {' / '.join(key)}.", "Add its range.")
        if not all(map(math.isfinite, got)):
            raise ConfigError(f"{' / '.join(key)} is not a finite number in every seed: {got}.")


def _row(expected: Expected, values: Sequence[float]) -> Row:
    mean, std = mean_std(values)
    low, high = expected.low, expected.high
    return Row(
        *expected.key,
        expected.unit,
        expected.published,
        mean,
        std,
        len(values),
        low,
        high,
        None if low is None or high is None else low <= mean <= high,
    )
