"""What the paper draws, and how much of it hinges on what it does not print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rm.sim.papers._metronome.snapshots import NAMES
from rm.sim.papers.frame.paper import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, LETTER, OURS = "#9a9a9a", "#0b6e99", "#d9822b"
COLOURS = {"Metronome": LETTER, "ours": OURS}
SCHEDULERS = {"Default": "#9a9a9a", "Diktyo": "#6b8e23", "Ideal": "black", **COLOURS}
THRESHOLDS = {"S1": "#0b6e99", "S2": "#d9822b", "S3": "#6b8e23", "S4": "#8b5a9c", "S5": "#b03a48"}


def draw(result: Result, figure: Figure) -> None:
    figure.set_size_inches(13, 9.5)
    panels = figure.subplots(3, 3)
    _bars(panels[0, 0], result, "Table V", "{}, {}", "against Default")
    panels[0, 0].set_title("Table V: utilisation gained over Default, %")
    _bars(panels[0, 1], result, "Fig. 8", "{}, {}", "high, saved of Default")
    panels[0, 1].set_title("Fig. 8: high jobs' time saved of Default, %")
    _curves(panels[0, 2], result, "Periods within G_T", COLOURS)
    panels[0, 2].axhline(19.35, color=PAPER, linestyle=":", label="printed for S2")
    panels[0, 2].set_title("S2 by the difference of its periods, ms: saved, %")
    _assumption(panels[1, 0], result, "fill", "part of the time that phases take")
    _assumption(panels[1, 1], result, "jitter", "jitter of the compute time")
    _threshold(panels[1, 2], result)
    _fifteen(panels[2, 0], result)
    _trace(panels[2, 1], result)
    _curves(panels[2, 2], result, "Fig. 16", SCHEDULERS)
    panels[2, 2].set_yscale("log")
    panels[2, 2].set_title("Fig. 16: a decision, ms, by the number of other jobs")
    for axes in (panels[0, 0], panels[0, 2], panels[2, 2]):
        axes.legend(fontsize=7)


def _bars(axes: Axes, result: Result, figure: str, case: str, metric: str) -> None:
    at = np.arange(len(NAMES))
    published = [result.row(figure, case.format(name, "Metronome"), metric).published for name in NAMES]
    axes.bar(at - 0.27, [p or 0.0 for p in published], 0.25, color=PAPER, label="published")
    for n, (who, colour) in enumerate(COLOURS.items()):
        rows = [result.row(figure, case.format(name, who), metric) for name in NAMES]
        label = "Metronome to the letter" if who == "Metronome" else "rm's defaults"
        axes.bar(
            at + 0.27 * n, [r.mean for r in rows], 0.25, yerr=[r.std for r in rows], color=colour, label=label
        )
    axes.set_xticks(at, NAMES)


def _curves(axes: Axes, result: Result, figure: str, colours: dict[str, str]) -> None:
    for case, colour in colours.items():
        found = result.series.get((figure, case))
        if found:
            _band(axes, found[0].x, [curve.y for curve in found], colour, case)


def _band(
    axes: Axes,
    x: tuple[float, ...],
    curves: list[tuple[float, ...]],
    colour: str,
    label: str,
    line: str = "-",
) -> None:
    y = np.array(curves)
    axes.plot(x, y.mean(axis=0), line, color=colour, label=label)
    axes.fill_between(x, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.15, linewidth=0)


def _assumption(axes: Axes, result: Result, what: str, label: str) -> None:
    for name, line in (("S1", "-"), ("S2", "--"), ("S3", ":")):
        for who, colour in COLOURS.items():
            found = result.series["Assumptions", f"{name}, {what}, {who}"]
            x = tuple(100 * value for value in found[0].x)
            _band(axes, x, [curve.y for curve in found], colour, f"{name}, {who}", line)
    axes.set_title("utilisation gained over Default, %")
    axes.set_xlabel(f"{label}, %")
    axes.legend(fontsize=7)


def _threshold(axes: Axes, result: Result) -> None:
    for name, colour in THRESHOLDS.items():
        for overs, line in ((3, "--"), (5, "-")):
            found = result.series["Fig. 14a", f"{name}, O_T = {overs}"]
            y = np.array([curve.y for curve in found]).mean(axis=0)
            label = name if overs == 5 else None
            axes.plot(found[0].x, y, line, color=colour, label=label)
    axes.set_title("Fig. 14a: low jobs' time above the best setting's, %")
    axes.set_xlabel("A_T, % (dashed: O_T = 3)")
    axes.legend(fontsize=7)


def _fifteen(axes: Axes, result: Result) -> None:
    for who, colour in (("high", LETTER), ("low", OURS)):
        for how, line in (("averaged", "-"), ("Default", ":")):
            found = result.series["Fig. 15", f"{who}, {how}"]
            _band(axes, found[0].x, [curve.y for curve in found], colour, f"{who}, {how}", line)
    axes.set_title("Fig. 15: time above that at equal periods, %")
    axes.set_xlabel("difference of the periods, ms")
    axes.legend(fontsize=7)


def _trace(axes: Axes, result: Result) -> None:
    """The first seed's trace."""
    for who, colour in SCHEDULERS.items():
        curve = result.series["Fig. 10", who][0]
        axes.step(curve.x, curve.y, where="post", color=colour, label=who)
    axes.set_title("Fig. 10: jobs done by minute (first seed)")
    axes.legend(fontsize=7)
