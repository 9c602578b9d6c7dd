"""Distributions of iteration times, Table 2, gains beside the printed ones, and what loops cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rm.sim.papers._cassini.circles import SNAPSHOTS, members
from rm.sim.papers.frame.paper import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = {
    "Themis": ("#d9822b", "-"),
    "Th+CASSINI": ("#0b6e99", "-"),
    "Pollux": ("#d9822b", "--"),
    "Po+CASSINI": ("#0b6e99", "--"),
    "Random": ("#888888", ":"),
    "Ideal": ("#2e8b57", "-"),
}
TITLES = {
    "Fig. 11": "Fig. 11: Poisson trace",
    "Fig. 13": "Fig. 13: dynamic trace, DLRM and ResNet50 arrive",
    "Fig. 14": "Fig. 14: dynamic trace, model parallel",
}
TH, PO = "Th+CASSINI over Themis", "Po+CASSINI over Pollux"
GAINS = (("Fig. 11", TH), ("Fig. 11", PO), ("Fig. 12", TH), ("Fig. 13", TH), ("Fig. 13", PO),
         ("Fig. 14", TH), ("Fig. 14", PO), ("Fig. 16", TH))  # fmt: skip
OURS = ("Themis", "Th+CASSINI", "Th+CASSINI, leave", "Th+CASSINI, joint", "packed", "packed, joint")
BEYOND = "beyond: traces"


def draw(result: Result, figure: Figure) -> None:
    figure.set_size_inches(14, 8)
    panels = figure.subplots(2, 3)
    for axes, (name, title) in zip(panels[0], TITLES.items(), strict=True):
        _curves(axes, result, name, title)
    _communication(panels[1, 0], result)
    _gains(panels[1, 1], result)
    _beyond(panels[1, 2], result)


def _curves(axes: Axes, result: Result, name: str, title: str) -> None:
    """The mean of each percentile over the seeds."""
    for scheduler, (colour, line) in CURVES.items():
        runs = result.series.get((name, scheduler))
        if runs:
            times = np.array([run.y for run in runs]).mean(axis=0)
            axes.plot(times, runs[0].x, line, color=colour, label=scheduler)
    axes.set_title(title)
    axes.set_xlabel("iteration time, ms")
    axes.set_ylabel("percentile")
    axes.legend()


def _communication(axes: Axes, result: Result) -> None:
    names = [(n, name) for n in SNAPSHOTS for name, _ in members(n)]
    at = np.arange(len(names))
    for number, scheduler in enumerate(("Themis", "Th+CASSINI")):
        cases = [("Table 2", f"snapshot {n}, {name}", f"communication, {scheduler}") for n, name in names]
        rows = [result.row(*case) for case in cases]
        colour = CURVES[scheduler][0]
        where = at + 0.4 * number - 0.2
        axes.bar(where, [r.mean for r in rows], 0.36, color=colour, alpha=0.7, label=f"{scheduler}, here")
        axes.plot(
            where, [r.published or 0.0 for r in rows], "k*" if number else "k+", label=f"{scheduler}, printed"
        )
    axes.set_xticks(at, [f"{n} {name}" for n, name in names], rotation=60, ha="right")
    axes.set_title("Table 2: communication times")
    axes.set_ylabel("ms")
    axes.legend(fontsize=7)


def _gains(axes: Axes, result: Result) -> None:
    at = np.arange(len(GAINS))
    for number, (metric, colour) in enumerate(
        (("gain, mean", "#0b6e99"), ("gain, 99th percentile", "#7a4fa3"))
    ):
        rows = [result.row(name, case, metric) for name, case in GAINS]
        where = at + 0.4 * number - 0.2
        spread = [r.std for r in rows]
        axes.bar(
            where, [r.mean for r in rows], 0.36, yerr=spread, color=colour, alpha=0.7, label=f"{metric}, here"
        )
        axes.plot(
            where, [r.published or 0.0 for r in rows], "*", color="black", label="printed" if number else None
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(at, [f"{name}, {case[:2]}" for name, case in GAINS], rotation=60, ha="right")
    axes.set_title("how much shorter iterations are")
    axes.set_ylabel("× (old over new)")
    axes.legend(fontsize=7)


def _beyond(axes: Axes, result: Result) -> None:
    """Iteration times against completion times: what is gained by waiting is seen on the other axis."""
    for name in OURS:
        slower = result.row(BEYOND, name, "iteration times over alone")
        saved = _saved(result, name)
        axes.errorbar([slower.mean], [saved[0]], xerr=[slower.std], yerr=[saved[1]], fmt="o", label=name)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_title("beyond the paper, on Fig. 11's trace")
    axes.set_xlabel("iteration times over alone")
    axes.set_ylabel("completion time saved of Themis's, %")
    axes.legend()


def _saved(result: Result, name: str) -> Sequence[float]:
    if name == "Themis":
        return 0.0, 0.0
    row = result.row(BEYOND, name, "completion time saved of Themis's")
    return row.mean, row.std
