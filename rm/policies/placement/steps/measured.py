"""All measured pairs of hosts as arrays: both directions folded to the worse, each with its confidence.

The same as `NetworkView.worst`, `confidence` and `bandwidth_confidence` pair by pair, for all at once. From
one snapshot to the next only what was measured meanwhile is read: of a thousand hosts there are 50,000 pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, is_, itemgetter

import numpy as np
from numpy.typing import NDArray

from rm.core.model.network.links import FAILED_TRY, GRACE_INTERVALS, HALVING_INTERVALS, LinkStats
from rm.policies.placement.steps.network_score import Floats

_FIELDS = (
    "loss_pct",
    "delay_us",
    "bandwidth_bps",
    "failures",
    "measured_at_us",
    "fresh_us",
    "bandwidth_at_us",
    "bandwidth_fresh_us",
)
_LOSS, _DELAY, _BANDWIDTH, _FAILURES, _AT, _FRESH, _BANDWIDTH_AT, _BANDWIDTH_FRESH = range(len(_FIELDS))
COLUMNS = 6  # of `Measured.values`
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Measured:
    """Pairs of hosts by number, the smaller number first, each pair once.

    `values` has a row a pair: loss %, delay us, bandwidth bps, failures, confidence in loss and delay, in
    bandwidth; nan = not measured. `ages_from_us`: when confidence in any begins to sink by age; None: never.
    """

    first: Numbers
    second: Numbers
    values: Floats
    ages_from_us: int | None


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of each pair the numbers of its hosts, and which readings are its two directions."""

    first: Numbers
    second: Numbers
    one: Numbers
    two: Numbers


class Readings:
    """What was measured in each direction, one column each, kept in step with one snapshot after the other.

    Only a cache: it compares the measurements themselves, not who holds them.
    """

    def __init__(self) -> None:
        self._directions: list[tuple[str, str]] = []
        self._stats: list[LinkStats] = []
        self._values: Floats = np.empty((len(_FIELDS), 0))
        self._names: tuple[str | None, ...] = ()
        self._ends: _Ends | None = None

    def follow(self, pairs: Mapping[tuple[str, str], LinkStats]) -> bool:
        """Read what differs from the snapshot before; is that anything?"""
        stats = list(pairs.values())
        if len(stats) != len(self._stats) or list(pairs) != self._directions:
            self._directions, self._ends = list(pairs), None
            self._values = _read(stats)
        elif all(map(is_, stats, self._stats)):
            return False
        else:
            changed = [i for i, one in enumerate(stats) if one is not self._stats[i]]
            self._values[:, changed] = _read([stats[i] for i in changed])
        self._stats = stats
        return True

    def between(self, names: Iterable[str | None], as_of_us: int) -> Measured:
        """What was measured between hosts, which are numbered in this order, as of this time; None stands for
        a host that is left out."""
        names = tuple(names)
        if self._ends is None or names != self._names:
            self._names, self._ends = names, _ends_of(self._directions, names)
        ends = self._ends
        if not len(ends.first):
            return Measured(ends.first, ends.second, np.empty((0, COLUMNS)), None)
        x, y = self._values[:, ends.one], self._values[:, ends.two]
        worst, best = np.fmax(x, y), np.fmin(x, y)
        loss, delay, bandwidth, failures = worst[_LOSS], worst[_DELAY], best[_BANDWIDTH], worst[_FAILURES]
        at, fresh, bandwidth_fresh = best[_AT], best[_FRESH], best[_BANDWIDTH_FRESH]
        bandwidth_at = np.where(best[_BANDWIDTH_AT] > 0, best[_BANDWIDTH_AT], at)
        sure = np.where(np.isnan(loss) & np.isnan(delay), 0.0, _worth(as_of_us - at, fresh, failures))
        known = ~np.isnan(bandwidth)
        bandwidth_sure = np.where(known, _worth(as_of_us - bandwidth_at, bandwidth_fresh, failures), 0.0)
        begins = np.concatenate(
            [
                (at + GRACE_INTERVALS * fresh)[fresh > 0],
                (bandwidth_at + GRACE_INTERVALS * bandwidth_fresh)[known & (bandwidth_fresh > 0)],
            ]
        )
        values = np.stack([loss, delay, bandwidth, failures, sure, bandwidth_sure], axis=1)
        return Measured(ends.first, ends.second, values, round(begins.min()) if len(begins) else None)


def _read(stats: Sequence[LinkStats]) -> Floats:
    """What is None becomes nan; a time in microseconds fits a float of 53 bits until the year 2255."""
    return np.array([_column(attrgetter(field), stats) for field in _FIELDS])


def _column(of: Callable[[LinkStats], float | None], stats: Sequence[LinkStats]) -> Floats:
    try:
        return np.fromiter(map(of, stats), float, len(stats))
    except TypeError:  # it met None; to ask for that first would cost what this saves
        return np.array(list(map(of, stats)), dtype=float)


def _ends_of(directions: Sequence[tuple[str, str]], names: Sequence[str | None]) -> _Ends:
    """A pair that was measured in one direction alone has that one twice."""
    number = {name: i for i, name in enumerate(names) if name is not None}.get
    source, target = (
        np.fromiter(map(number, map(itemgetter(end), directions), repeat(-1)), np.int64, len(directions))
        for end in (0, 1)
    )
    there = np.flatnonzero((source >= 0) & (target >= 0) & (source != target))
    source, target = source[there], target[there]
    forth, back = source * len(names) + target, target * len(names) + source
    order = np.argsort(forth, kind="stable")  # the pairs mostly come in runs that are in order already
    at = np.searchsorted(forth, back, sorter=order) % max(len(order), 1)
    reverse = order[at]
    both = forth[reverse] == back
    once = (source < target) | ~both  # else it is counted from its other end
    one, two = there, np.where(both, there[reverse], there)
    return _Ends(np.minimum(source, target)[once], np.maximum(source, target)[once], one[once], two[once])


def _worth(age_us: Floats, fresh_us: Floats, failures: Floats) -> Floats:
    """As in `rm.core.model.network.links`: 1 when measured lately, halved by failures and age."""
    intervals = np.divide(age_us, fresh_us, out=np.zeros_like(age_us), where=fresh_us > 0)
    late = np.maximum(0.0, intervals - GRACE_INTERVALS)
    worth: Floats = FAILED_TRY ** np.minimum(failures, 64.0) * 0.5 ** np.minimum(late / HALVING_INTERVALS, 64)
    return worth
