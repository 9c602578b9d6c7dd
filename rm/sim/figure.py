"""Plots as files: the same result gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# no date, no version, no random identifiers: a plot changes only when its result does
NO_METADATA = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
STYLE = {
    "svg.hashsalt": "rmx",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.dpi": 120,
}


def save(plot: Callable[[Figure], None], path: Path) -> None:
    """Write what `plot` draws into an empty figure; the suffix chooses the format.

    Raises:
        UsageError: another suffix than .svg, .png or .pdf, or a place that cannot be written.
    """
    if path.suffix not in NO_METADATA:
        raise UsageError(f"A plot cannot be written as {path.name!r}.", f"Use {', '.join(NO_METADATA)}.")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {**matplotlib.rcParamsDefault, "backend": "Agg", **STYLE}  # the user's own style has no say
    with matplotlib.rc_context(style):
        figure = pyplot.figure(layout="constrained")
        plot(figure)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata=NO_METADATA[path.suffix])
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
        finally:
            pyplot.close(figure)
