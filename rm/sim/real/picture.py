"""The plot of a comparison on real workloads: each system's job times over those of the bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rm.sim.figure import save
from rm.sim.real.compare import Found, over_seeds
from rm.sim.real.systems import IDEAL, OURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = {"mean_s": "mean job time", "p99_s": "99th percentile of job times", "slowdown": "mean iteration"}


def job_times(found: Found, title: str, path: Path, ours: str = OURS) -> None:
    """By how many percent each figure is above the bound's, a bar a system, with a point for each workload.
    Without the bound, above the least."""

    def plot(figure: Figure) -> None:
        systems = [s for s in dict.fromkeys(unit.system for unit in found) if s != IDEAL]
        workloads = list(dict.fromkeys(unit.workload for unit in found))
        figure.set_size_inches(9, 0.28 * len(systems) + 1.6)
        figure.suptitle(title)
        for number, (field, what) in enumerate(SHOWN.items(), 1):
            values = over_seeds(found, field)
            axes = figure.add_subplot(1, len(SHOWN), number)
            for row, system in enumerate(systems):
                more = []
                for name in workloads:
                    bound = values.get((IDEAL, name)) or min(values[one, name] for one in systems)
                    more.append(100 * (values[system, name] / bound - 1))
                colour = "C1" if system == ours else "C0"
                axes.barh(row, sum(more) / len(more), color=colour, alpha=0.5)
                axes.plot(more, [row] * len(more), ".", color=colour, markersize=3)
            axes.set_yticks(range(len(systems)), systems if number == 1 else [""] * len(systems))
            axes.invert_yaxis()
            axes.set_xlabel(f"{what}, % above no contention")

    save(plot, path)
