"""Figs. 11 to 14 once for each model of training, with what the paper's text prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rm.sim.papers.frame.paper import Result, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"CIFAR-10": "#0b6e99", "notMNIST": "#d9822b"}
LINES = {"worst case": "-", "proposed": "--"}
CAUSES = ("bandwidth", "loss", "delay")
PRINTED = {"Fig. 11": (40, 1041), "Fig. 13": (500, 800)}  # x, s


def draw(
    result: Result,
    figure: Figure,
    sweeps: Mapping[str, tuple[str, str, float, str]],
    models: Sequence[str],
    gain: str,
) -> None:
    figure.set_size_inches(14, 7)
    panels = figure.subplots(len(models), len(sweeps) + 1, squeeze=False)
    for line, model in zip(panels, models, strict=True):
        for axes, (name, (_, _, factor, label)) in zip(line, sweeps.items(), strict=False):
            _curves(axes, result, name, model, factor)
            axes.set_title(f"{name}, {model}")
            axes.set_xlabel(label)
            axes.set_yscale("log")
        line[0].set_ylabel("training time, s")
        _gains(line[-1], result, gain, model)
    handles = [*panels[0, 0].get_legend_handles_labels()[0], *panels[0, -1].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)


def _curves(axes: Axes, result: Result, name: str, model: str, factor: float) -> None:
    for data, colour in COLOURS.items():
        for which, line in LINES.items():
            curves: Sequence[Series] = result.series[name, f"{data}, {model}, {which}"]
            x = factor * np.array(curves[0].x)
            y = np.array([curve.y for curve in curves])
            axes.plot(x, y.mean(axis=0), line, color=colour, label=f"{data}, {which}")
            axes.fill_between(x, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    if name in PRINTED:
        at, seconds = PRINTED[name]
        axes.plot([at], [seconds], "k*", label="CIFAR-10, printed (at 500 ms: not above)")


def _gains(axes: Axes, result: Result, gain: str, model: str) -> None:
    """The gains as time saved, beside the printed ones."""
    at = np.arange(len(CAUSES))
    for n, (data, colour) in enumerate(COLOURS.items()):
        rows = [result.row(gain, f"{data}, {model}", f"time saved, {what}") for what in CAUSES]
        axes.bar(
            at + 0.4 * n - 0.1, [r.mean for r in rows], 0.18, color=colour, label=f"{data}, time saved here"
        )
        published = [r.published or 0.0 for r in rows]
        axes.bar(
            at + 0.4 * n - 0.29,
            published,
            0.18,
            color=colour,
            alpha=0.4,
            label=f"{data}, time saved, published",
        )
    axes.set_xticks(at + 0.1, CAUSES)
    axes.set_title(f"{gain}, {model}")
    axes.set_ylabel("time saved, %")
