"""Metronome: its snapshots, trace, ablations and thresholds, to the letter and by rm's own defaults.

A seed draws the order of the hosts, the arrivals and the jitter of the jobs; within a seed all
schedulers meet the same. Every ambiguity, and what does not come out: docs/papers/metronome.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rm.sim.papers._metronome import (
    ablations,
    assumptions,
    beyond,
    deciding,
    periods,
    snapshots_compared,
    trace,
)
from rm.sim.papers._metronome.snapshots import NAMES
from rm.sim.papers.frame.paper import Paper, Result, Sample, Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(part: str, seed: int) -> Iterator[Sample | Series]:
    if part in NAMES:
        yield from snapshots_compared.compared(part, seed)
        yield from ablations.ablated(part, seed)
        yield from ablations.thresholds(part, seed)
    elif part == "S0 and half batch":
        yield from snapshots_compared.incompatible(seed)
        yield from snapshots_compared.halved(seed)
    elif part == "periods":
        yield from periods.injected(seed)
        yield from periods.nearly_equal(seed)
    elif part == "assumptions":
        yield from assumptions.swept(seed)
    elif part == "trace":
        yield from trace.total_times(seed)
    elif part == "beyond":
        yield from beyond.beyond(seed)
    else:
        yield from deciding.decided(seed)


def plot(result: Result, figure: Figure) -> None:
    from rm.sim.papers._metronome.picture import draw

    draw(result, figure)


PAPER = Paper(
    title="Metronome: Efficient Scheduling for Periodic Traffic Jobs with Network and Priority Awareness",
    source="H. Jiang, M. Qin, R. Kuai, D. Liang",
    measure=measure,
    plot=plot,
    parts=("trace", "beyond", *NAMES, "S0 and half batch", "periods", "assumptions", "time"),
)
