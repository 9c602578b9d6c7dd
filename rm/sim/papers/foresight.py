"""FORESIGHT: what delays, throttles and routes gain over ECMP (Figs. 5 to 7, Table I).

A seed draws jobs and placements; within it all cases run the same ones. Speed-up is the mean over
all iterations of all jobs under ECMP, over the case's. The story: docs/papers/foresight.md.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rm.sim.papers._foresight.colourings import count
from rm.sim.papers._foresight.run import Case, Measured, simulate
from rm.sim.papers._foresight.workload import Scene, scene
from rm.sim.papers.frame.paper import Paper, Sample, Series
from rm.sim.papers.frame.paper import Result as Table
from rm.sim.papers.frame.parameters import parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIG5, FIG6, FIG7, TABLE1 = "Fig. 5", "Fig. 6", "Fig. 7", "Table I"
JOBS, CHECK, HINGE, BEYOND = "Sec. IV-1", "Checks", "What it hinges on", "Beyond the paper"
READ = "Fig. 5, Alg. 1's bad ranges accumulated"
GAIN, RATIO = "speed-up over ECMP", "ratio of the speed-ups"
ECMP = Case()
FORESIGHT = Case({"variant": "full"})
CASES: Mapping[str, Case] = {
    "TS": Case({"variant": "timing", "guard": False}),
    "RO": Case({"variant": "routing", "guard": False}),
    "SUB": Case({"variant": "subflows", "guard": False}),
    "FORESIGHT": FORESIGHT,
    "perfect": Case(perfect=True),
}
MODERATE = 4  # spines: oversubscription 2
SLOWER = 0.999  # a speed-up below this is a loss and no rounding


def measure(part: str, seed: int) -> Iterator[Sample | Series]:
    yield from PARTS[part](seed)


def _chance(seed: int) -> random.Random:
    return random.Random(f"foresight/{seed}")


def _of(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def _gain(place: Scene, spines: int, seed: int, case: Case = FORESIGHT, **more: Any) -> float:
    """Speed-up of a case over ECMP under the same assumptions."""
    base = replace(case, comm=None, perfect=False)
    return (
        simulate(place, spines, base, seed, **more).mean_us
        / simulate(place, spines, case, seed, **more).mean_us
    )


def _fig5(seed: int) -> Iterator[Sample | Series]:
    """The variants at each oversubscription; at 2 the single jobs as well, which is Table I."""
    levels: Sequence[int] = parameters("foresight")["spines"]
    gains: dict[str, list[float]] = {name: [] for name in CASES}
    for spines in levels:
        place = scene(_chance(seed), spines)
        base = simulate(place, spines, ECMP, seed)
        yield Sample(FIG5, f"{_of(spines, 'spine')}", "fragmentation", place.fragmentation)
        if spines == MODERATE:
            yield from _jobs("ECMP", base)
        for name, case in CASES.items():
            found = simulate(place, spines, case, seed)
            gain = base.mean_us / found.mean_us
            gains[name].append(gain)
            yield Sample(FIG5, f"{name}, {_of(spines, 'spine')}", GAIN, gain)
            if spines == MODERATE and name in ("FORESIGHT", "perfect"):
                yield from _jobs(name, found)
    for name, values in gains.items():
        yield Series(FIG5, name, tuple(map(float, levels)), tuple(values))


def _jobs(name: str, found: Measured) -> Iterator[Sample]:
    """Lines of Table I: an iteration over the same iteration in isolation."""
    slower = [us / alone for us, alone in zip(found.iteration_us, found.alone_us, strict=True)]
    yield Sample(TABLE1, name, "slowdown, mean of the jobs", fmean(slower))
    yield Sample(TABLE1, name, "slowdown, the job that suffers most", max(slower))
    yield Sample(TABLE1, name, "slowdown, the job that suffers least", min(slower))
    if name == "FORESIGHT":
        yield Sample(TABLE1, name, "delay per iteration, mean of the jobs", fmean(found.delay_us) / 1e3)


def _fig6(seed: int) -> Iterator[Sample | Series]:
    """One set of jobs per seed in many placements."""
    known = parameters("foresight")
    low, high = known["placement_fragmentation"]
    gains: list[tuple[float, float]] = []
    for number in range(known["placements"]):
        chance = random.Random(f"foresight/{seed}/{number}")
        place = scene(chance, MODERATE, chance.uniform(low, high))
        gains.append((place.fragmentation, _gain(place, MODERATE, seed * known["placements"] + number)))
    middle = (low + high) / 2
    yield Sample(FIG6, f"fragmentation below {middle:g}", GAIN, fmean(g for f, g in gains if f < middle))
    yield Sample(FIG6, f"fragmentation from {middle:g} on", GAIN, fmean(g for f, g in gains if f >= middle))
    yield Sample(FIG6, "all placements", "least speed-up over ECMP", min(g for _, g in gains))
    slower = sum(g < SLOWER for _, g in gains) / len(gains)
    yield Sample(FIG6, "all placements", "placements that are slower than ECMP", 100 * slower)
    yield Series(FIG6, "fragmentation", tuple(f for f, _ in gains), tuple(g for _, g in gains))


def _intensity(seed: int) -> Iterator[Sample | Series]:
    known = parameters("foresight")
    bounds = known["sweep_intensity"]
    grid: dict[tuple[int, int], float] = {}
    for row, ratios in enumerate(itertools.pairwise(bounds)):
        for column, fragmentation in enumerate(known["sweep_fragmentation"]):
            place = scene(_chance(seed), MODERATE, fragmentation, intensity=ratios)
            grid[row, column] = _gain(place, MODERATE, seed)
    rows, columns = range(len(bounds) - 1), range(len(known["sweep_fragmentation"]))
    for column, fragmentation in enumerate(known["sweep_fragmentation"]):
        yield Sample(FIG7, f"fragmentation {fragmentation}", GAIN, fmean(grid[row, column] for row in rows))
    for row in rows:
        case = f"intensity {bounds[row]} to {bounds[row + 1]}"
        gains = [grid[row, column] for column in columns]
        yield Sample(FIG7, case, GAIN, fmean(gains))
        yield Series(FIG7, case, tuple(known["sweep_fragmentation"]), tuple(gains))
    yield Sample(FIG7, "highest fragmentation and intensity", GAIN, grid[rows[-1], columns[-1]])
    most, least = (fmean(grid[row, column] for row in rows) for column in (columns[-1], columns[0]))
    yield Sample(FIG7, "highest fragmentation against lowest", RATIO, most / least)
    most, least = (fmean(grid[row, column] for column in columns) for row in (rows[-1], rows[0]))
    yield Sample(FIG7, "highest intensity against lowest", RATIO, most / least)


def _sizes(seed: int) -> Iterator[Sample | Series]:
    """Jobs of one size on racks of one size, the oversubscription always 2."""
    known = parameters("foresight")
    sizes, racks = known["sweep_job_machines"], known["sweep_rack"]
    grid = {
        (size, rack): _gain(scene(_chance(seed), rack // 2, sizes=(size, size), rack=rack), rack // 2, seed)
        for size in sizes
        for rack in racks
    }
    by_size = {size: [grid[size, rack] for rack in racks] for size in sizes}
    by_rack = {rack: [grid[size, rack] for size in sizes] for rack in racks}
    for size, gains in by_size.items():
        yield Sample(FIG7, f"jobs of {size} machines", GAIN, fmean(gains))
        yield Series(FIG7, f"jobs of {size} machines", tuple(map(float, racks)), tuple(gains))
    for rack, gains in by_rack.items():
        yield Sample(FIG7, f"racks of {rack} machines", GAIN, fmean(gains))
    for name, there in (("jobs", by_size), ("racks", by_rack)):
        ratio = fmean(there[max(there)]) / fmean(there[min(there)])
        yield Sample(FIG7, f"largest {name} against smallest", RATIO, ratio)
    for name, size in (("one job", known["machines"]), ("two jobs", known["machines"] // 2)):
        for spines in (known["rack"], MODERATE):
            gain = _gain(scene(_chance(seed), spines, sizes=(size, size)), spines, seed)
            yield Sample(JOBS, f"{name}, {_of(spines, 'spine')}", GAIN, gain)


def _checks(seed: int) -> Iterator[Sample | Series]:
    known = parameters("foresight")
    done = []
    for spines in known["spines"]:
        place = scene(_chance(seed), spines)
        done.append(count(place, spines, known["units"], iterations=20))
    yield Sample(CHECK, "edge colouring", "colourings", sum(d.colourings for d in done))
    yield Sample(CHECK, "edge colouring", "more colours than the maximum degree", sum(d.beyond for d in done))
    yield Sample(CHECK, "edge colouring", "two edges of one colour at a leaf", sum(d.improper for d in done))
    for spines in known["spines"][:-1]:
        place = scene(_chance(seed), spines)
        found = simulate(place, spines, Case({"variant": "full", "guard": False}), seed)
        case = f"FORESIGHT without its guard, {_of(spines, 'spine')}"
        yield Sample(CHECK, case, "time with an overloaded link", found.overloaded_us / 1e3)


def _hinges(seed: int) -> Iterator[Sample | Series]:
    """FORESIGHT's gain under other readings of the set-up."""
    known = parameters("foresight")
    readings = {
        "barrier after each stage, ECMP drawn per connection": replace(FORESIGHT, ecmp="connection"),
        "no barriers, ECMP drawn per all-reduce": replace(FORESIGHT, stages="apart"),
        "no barriers, ECMP drawn per connection": replace(FORESIGHT, stages="apart", ecmp="connection"),
    }
    for spines in known["spines"][:2]:
        place = scene(_chance(seed), spines)
        for name, case in readings.items():
            yield Sample(HINGE, f"{name}, {_of(spines, 'spine')}", GAIN, _gain(place, spines, seed, case))
        if seed <= known["full_horizon_seeds"]:
            case_name = f"{known['full_horizon_ms'] // 1000} s planned at once, {_of(spines, 'spine')}"
            gain = _gain(place, spines, seed, horizon_ms=known["full_horizon_ms"])
            yield Sample(HINGE, case_name, GAIN, gain)
            gain = _gain(place, spines, seed)
            yield Sample(
                HINGE, f"{known['horizon_ms'] // 1000} s, the same seeds, {_of(spines, 'spine')}", GAIN, gain
            )
    for spines in known["spines"][1:3]:
        loose = scene(_chance(seed), spines, confined=False)
        yield Sample(
            HINGE,
            f"jobs that exceed a rack's uplinks alone, {_of(spines, 'spine')}",
            GAIN,
            _gain(loose, spines, seed),
        )
    place = scene(_chance(seed), MODERATE)
    for name, options in (
        ("no throttling", {"throttling": False}),
        ("no guard", {"guard": False}),
        *((f"{_of(units, 'unit')} a link", {"units": units}) for units in known["sweep_units"]),
    ):
        gain = _gain(place, MODERATE, seed, Case({"variant": "full"} | options))
        yield Sample(HINGE, f"{name}, {_of(MODERATE, 'spine')}", GAIN, gain)


def _repairs(seed: int) -> Iterator[Sample | Series]:
    """rm's repair of a failed routing against the loop of Alg. 1."""
    for spines in parameters("foresight")["spines"][:-1]:
        place = scene(_chance(seed), spines)
        base = simulate(place, spines, ECMP, seed).mean_us
        best = simulate(place, spines, CASES["perfect"], seed).mean_us
        for repair in ("local", "merged", "paper"):
            found = simulate(place, spines, Case({"variant": "full", "repair": repair}), seed).mean_us
            yield Sample(BEYOND, f"repair {repair}, {_of(spines, 'spine')}", GAIN, base / found)
            yield Sample(
                BEYOND,
                f"repair {repair}, {_of(spines, 'spine')}",
                "iteration time over perfect",
                found / best,
            )
        found = simulate(place, spines, Case({"variant": "full", "repair": "accumulated"}), seed).mean_us
        yield Sample(READ, _of(spines, "spine"), GAIN, base / found)


PARTS: Mapping[str, Callable[[int], Iterator[Sample | Series]]] = {
    "fig5": _fig5,
    "fig6": _fig6,
    "intensity": _intensity,
    "sizes": _sizes,
    "checks": _checks,
    "hinges": _hinges,
    "repairs": _repairs,
}


def plot(result: Table, figure: Figure) -> None:
    """Speed-ups by spines, their distribution over placements, and both sweeps."""
    figure.set_size_inches(10, 8)
    (five, six), (seven, sizes) = figure.subplots(2, 2)
    for name in CASES:
        curves = result.series[FIG5, name]
        spines = [f"{n:g}" for n in curves[0].x]
        five.plot(spines, [fmean(c.y[n] for c in curves) for n in range(len(spines))], "o-", label=name)
    five.axhline(1, color="grey", linewidth=0.8)
    five.set_title(FIG5)
    five.set_xlabel("spines")
    five.set_ylabel(GAIN)
    five.legend()
    points = [p for c in result.series[FIG6, "fragmentation"] for p in zip(c.x, c.y, strict=True)]
    for label, wanted in (
        ("below 0.33", [g for f, g in points if f < 0.33]),
        ("0.33 to 0.56", [g for f, g in points if 0.33 <= f < 0.56]),
        ("from 0.56 on", [g for f, g in points if f >= 0.56]),
    ):
        six.step(
            sorted(wanted), [(n + 1) / len(wanted) for n in range(len(wanted))], where="post", label=label
        )
    six.set_title(f"{FIG6}: {len(points)} placements, by fragmentation")
    six.set_xlabel(GAIN)
    six.set_ylabel("share of placements")
    six.legend()
    for at, prefix, label, axis in (
        (seven, "intensity", "fragmentation", "intensity"),
        (sizes, "jobs of", "machines in a rack", "job"),
    ):
        names = [case for fig, case in result.series if fig == FIG7 and case.startswith(prefix)]
        table = [
            [fmean(values) for values in zip(*(c.y for c in result.series[FIG7, n]), strict=True)]
            for n in names
        ]
        at.imshow(table, aspect="auto", origin="lower", cmap="viridis")
        columns = result.series[FIG7, names[0]][0].x
        at.set_xticks(range(len(columns)), [f"{x:g}" for x in columns])
        at.set_yticks(range(len(names)), [name.removeprefix(prefix).strip() for name in names])
        for row, values in enumerate(table):
            for column, value in enumerate(values):
                at.text(column, row, f"{value:.2f}", ha="center", va="center", color="white")
        at.set_title(f"{FIG7}: {GAIN}")
        at.set_xlabel(label)
        at.set_ylabel(axis)


PAPER = Paper(
    title="FORESIGHT: Joint Time and Space Scheduling for Efficient Distributed ML Training",
    source="F. Zandi, M. Ghobadi, Y. Ganjali",
    measure=measure,
    plot=plot,
    parts=tuple(PARTS),
    seeds=10,
)
