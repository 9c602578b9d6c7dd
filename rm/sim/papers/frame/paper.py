"""What a paper's module declares, and what its scenario yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = tuple[str, str, str]  # figure, case, metric


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured number of one seed, for the table. Its unit stands in the expected row."""

    figure: str
    case: str
    metric: str
    value: float

    @property
    def key(self) -> Key:
        return self.figure, self.case, self.metric


@dataclass(frozen=True, slots=True)
class Series:
    """A curve of one seed, for the plot alone."""

    figure: str
    case: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class Row(NamedTuple):
    """One line of the table: what was published, and mean and spread of what was measured. Without a range
    it is a plain figure."""

    figure: str
    case: str
    metric: str
    unit: str
    published: float | None
    mean: float
    std: float
    seeds: int
    low: float | None
    high: float | None
    within: bool | None


@dataclass(frozen=True, slots=True)
class Result:
    """What a paper's plot is drawn from. `values` holds each row's samples in the order of the seeds."""

    rows: Sequence[Row]
    values: Mapping[Key, tuple[float, ...]]
    series: Mapping[tuple[str, str], tuple[Series, ...]]  # by figure and case, in the order of the seeds

    def row(self, figure: str, case: str, metric: str) -> Row:
        return next(r for r in self.rows if (r.figure, r.case, r.metric) == (figure, case, metric))


def _nothing(samples: Sequence[Sample]) -> Iterable[Sample]:
    return ()


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's scenario.

    Args:
        title: the paper's title.
        source: authors, venue and year.
        measure: (part, seed) -> samples and series of this part of the scenario; a function of its
            module that depends on its arguments alone. Seeds count from 1.
        plot: draws the result into an empty matplotlib figure, and sets its size.
        parts: pieces of the scenario that may run in parallel.
        derive: all samples of one seed -> further samples, e.g. gains of one case over another.
        seeds: how many seeds a run takes when nobody says otherwise; at least 10.
    """

    title: str
    source: str
    measure: Callable[[str, int], Iterable[Sample | Series]]
    plot: Callable[[Result, Figure], None]
    parts: tuple[str, ...] = ("",)
    derive: Callable[[Sequence[Sample]], Iterable[Sample]] = field(default=_nothing)
    seeds: int = 10
