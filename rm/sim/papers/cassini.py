"""CASSINI: circles and snapshots on one link, traces on 24 servers, and loops solved instead of discarded.

A seed draws the traces, the noise, and where indifferent schedulers place jobs; within a seed all
schedulers have the same jobs. Every ambiguity: docs/papers/cassini.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rm.sim.papers._cassini import circles, loops, outcome, snapshots, testbed, traces
from rm.sim.papers._cassini.models import LARGEST, MIXED, MODEL_PARALLEL
from rm.sim.papers._cassini.outcome import Outcome
from rm.sim.papers._cassini.schedulers import (
    IDEAL,
    PACKED,
    PACKED_JOINT,
    PO_CASSINI,
    POLLUX,
    RANDOM,
    TH_CASSINI,
    TH_JOINT,
    TH_LEAVE,
    THEMIS,
    Scheduler,
)
from rm.sim.papers.frame.paper import Paper, Result, Sample, Series
from rm.sim.papers.frame.parameters import parameters
from rm.sim.statistics import reduction_pct
from rm.sim.workload import SimJob

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HINGES = "what it hinges on"
BEYOND = "beyond: traces"
READ = "Fig. 11, a shared uplink loses 12 %"
QUANTILES = tuple(float(q) for q in (*range(0, 95, 5), *range(95, 101)))
PAIRS = ((THEMIS, TH_CASSINI), (POLLUX, PO_CASSINI))


def measure(part: str, seed: int) -> Iterator[Sample | Series]:
    yield from PARTS[part](seed)


def _link(seed: int) -> Iterator[Sample]:
    """What happens on one link."""
    yield from circles.fig_5()
    yield from circles.table_2()
    yield from snapshots.table_2(seed)
    yield from snapshots.fig_2(seed)
    yield from snapshots.fig_17(seed)


def _poisson(seed: int) -> Iterator[Sample | Series]:
    known, bed = parameters("cassini"), testbed.single_gpu()
    jobs = traces.poisson_trace(MIXED, bed.gpus, seed)
    epoch_us = known["epoch_us"] // known["scale"]
    mine = (THEMIS, TH_CASSINI, POLLUX, PO_CASSINI, RANDOM, IDEAL)
    found = {s.name: outcome.run(bed, jobs, s, seed, epoch_us) for s in mine}
    yield from _gains("Fig. 11", found)
    yield from _curves("Fig. 11", found)
    ideal, themis = found[IDEAL.name], found[THEMIS.name]
    yield from _gain("Fig. 11", "Ideal over Themis", themis, ideal)
    yield Sample(
        "Fig. 11", TH_CASSINI.name, "mean over Ideal's", found[TH_CASSINI.name].mean_ms / ideal.mean_ms
    )
    yield Sample("Fig. 11", RANDOM.name, "mean over Themis's", found[RANDOM.name].mean_ms / themis.mean_ms)
    for plain, augmented in PAIRS:
        before, after = found[plain.name], found[augmented.name]
        yield Sample("Fig. 11", f"{augmented.name} over {plain.name}", "completion time saved",
                     reduction_pct(before.jct_s, after.jct_s))  # fmt: skip
    ours = {
        s.name: outcome.run(bed, jobs, s, seed, epoch_us) for s in (TH_LEAVE, TH_JOINT, PACKED, PACKED_JOINT)
    }
    for name in (TH_CASSINI.name, *ours):
        one = (found | ours)[name]
        yield Sample(BEYOND, name, "iteration times over alone", float(one.slowdowns.mean()))
        yield Sample(BEYOND, name, "mean, gain over Themis", themis.mean_ms / one.mean_ms)
        yield Sample(
            BEYOND, name, "completion time saved of Themis's", reduction_pct(themis.jct_s, one.jct_s)
        )
    yield Sample(BEYOND, THEMIS.name, "iteration times over alone", float(themis.slowdowns.mean()))


def _models(seed: int) -> Iterator[Sample | Series]:
    known, bed = parameters("cassini"), testbed.single_gpu()
    jobs = traces.poisson_trace(MODEL_PARALLEL, bed.gpus, seed)
    found = _found(bed, jobs, PAIRS[:1], seed, known["epoch_us"] // known["scale"])
    yield from _gains("Fig. 12", found)


def _checks(seed: int) -> Iterator[Sample]:
    """What the results hinge on: the scale, common multiples of iteration times, jobs on one link."""
    known = parameters("cassini")
    bed, crowded, scale = testbed.single_gpu(), testbed.single_gpu(known["crowded_leaf"]), known["scale"]
    for case, cluster, divided, grid in (
        ("iterations divided by twice as much", bed, 2 * scale, True),
        ("iteration times as they come", bed, scale, False),
        ("four servers behind an uplink", crowded, scale, True),
    ):
        jobs = traces.poisson_trace(MIXED, cluster.gpus, seed, scale=divided, grid=grid)
        mine = (THEMIS, TH_CASSINI, IDEAL)
        found = [outcome.run(cluster, jobs, s, seed, known["epoch_us"] // divided) for s in mine]
        yield from _gain(HINGES, case, found[0], found[1])
        yield from _gain(HINGES, f"{case}, Ideal", found[0], found[2])


def _lossy(seed: int) -> Iterator[Sample]:
    """Fig. 11 where an uplink that jobs share carries less; and with the models that send the most."""
    known, bed = parameters("cassini"), testbed.single_gpu()
    for case, models in (("", MIXED), (", the largest models", LARGEST)):
        jobs = traces.poisson_trace(models, bed.gpus, seed)
        mine = (THEMIS, TH_CASSINI, IDEAL)
        epoch_us, loss = known["epoch_us"] // known["scale"], known["shared_loss"]
        found = [outcome.run(bed, jobs, s, seed, epoch_us, shared_loss=loss) for s in mine]
        yield from _gain(READ, f"Th+CASSINI over Themis{case}", found[0], found[1])
        yield from _gain(READ, f"Ideal over Themis{case}", found[0], found[2])


def _dynamic(seed: int) -> Iterator[Sample | Series]:
    known, bed = parameters("cassini"), testbed.single_gpu()
    epoch_us, after_us = known["dynamic_epoch_us"], known["arrival_us"]
    for figure, jobs, pairs in (
        ("Fig. 13", traces.data_parallel(bed.gpus, seed), PAIRS),
        ("Fig. 14", traces.model_parallel(bed.gpus, seed), PAIRS),
    ):
        found = _found(bed, jobs, pairs, seed, epoch_us, after_us)
        yield from _gains(figure, found, congestion=True)
        yield from _curves(figure, found)
    multi = testbed.multi_gpu()
    found = _found(multi, traces.multi_gpu(multi.gpus, seed), PAIRS[:1], seed, epoch_us, after_us)
    yield from _gains("Fig. 16", found)


def _found(
    bed: testbed.Testbed,
    jobs: Sequence[SimJob],
    pairs: Sequence[tuple[Scheduler, Scheduler]],
    seed: int,
    epoch_us: int,
    after_us: float = 0.0,
) -> dict[str, Outcome]:
    return {s.name: outcome.run(bed, jobs, s, seed, epoch_us, after_us) for pair in pairs for s in pair}


def _gains(figure: str, found: Mapping[str, Outcome], congestion: bool = False) -> Iterator[Sample]:
    for plain, augmented in PAIRS:
        if plain.name not in found:
            continue
        before, after = found[plain.name], found[augmented.name]
        case = f"{augmented.name} over {plain.name}"
        yield from _gain(figure, case, before, after)
        if congestion:
            less = reduction_pct(before.congestion, after.congestion) if before.congestion else 0.0
            yield Sample(figure, case, "congestion removed", less)


def _gain(figure: str, case: str, before: Outcome, after: Outcome) -> Iterator[Sample]:
    yield Sample(figure, case, "gain, mean", before.mean_ms / after.mean_ms)
    yield Sample(figure, case, "gain, 99th percentile", before.tail_ms / after.tail_ms)


def _curves(figure: str, found: Mapping[str, Outcome]) -> Iterator[Series]:
    """The distribution of iteration times: the time at each percentile."""
    for name, one in found.items():
        times = np.percentile(one.iterations_ms, QUANTILES)
        yield Series(figure, name, QUANTILES, tuple(float(t) for t in times))


def plot(result: Result, figure: Figure) -> None:
    from rm.sim.papers._cassini.picture import draw

    draw(result, figure)


PARTS = {
    "link": _link,
    "poisson": _poisson,
    "models": _models,
    "dynamic": _dynamic,
    "checks": _checks,
    "lossy": _lossy,
    "loops": loops.measure,
}
PAPER = Paper(
    title="CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters",
    source="S. Rajasekaran et al., NSDI 2024",
    measure=measure,
    plot=plot,
    parts=tuple(PARTS),
    seeds=10,
)
