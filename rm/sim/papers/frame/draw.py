"""A paper's plot as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rm.sim.figure import save
from rm.sim.papers.frame.paper import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(plot: Callable[[Result, Figure], None], result: Result, path: Path) -> None:
    """Write a paper's plot of its result; see `rm.sim.figure.save`."""
    save(lambda figure: plot(result, figure), path)
