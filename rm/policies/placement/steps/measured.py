"""All measured pairs of hosts as arrays: both directions folded to the worse, each with its confidence.

The same as `NetworkView.worst`, `confidence` and `bandwidth_confidence` pair by pair, for all at once: on
a thousand hosts those took a third of the time in which a pass fills an empty cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from rm.core.model.network import FAILED_TRY, GRACE_INTERVALS, HALVING_INTERVALS, LinkStats
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
_read = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class Measured:
    """Pairs of hosts by number, the smaller number first, each pair once.

    `values` has a row a pair: loss %, delay us, bandwidth bps, failures, confidence in loss and delay, in
    bandwidth; nan = not measured. `ages_from_us`: when confidence in any begins to sink by age; None: never.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    values: Floats
    ages_from_us: int | None


def measured(
    pairs: Mapping[tuple[str, str], LinkStats], number: Mapping[str, int], as_of_us: int
) -> Measured:
    """What was measured between the hosts that have a number, as of this time."""
    one: list[LinkStats] = []
    two: list[LinkStats] = []
    ends: list[tuple[int, int]] = []
    for (a, b), stats in pairs.items():
        i, j = number.get(a), number.get(b)
        if i is None or j is None or i == j:
            continue
        back = pairs.get((b, a))
        if i < j:
            ends.append((i, j))
        elif back is None:
            ends.append((j, i))
        else:
            continue  # counted from its other end
        one.append(stats)
        two.append(stats if back is None else back)
    if not ends:
        nothing = np.empty(0, dtype=np.int64)
        return Measured(nothing, nothing, np.empty((0, COLUMNS)), None)
    # what is None becomes nan; a time in microseconds fits a float of 53 bits until the year 2255
    x = np.array([_read(stats) for stats in one], dtype=float).T
    y = np.array([_read(stats) for stats in two], dtype=float).T
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
    first, second = np.array(ends, dtype=np.int64).T
    values = np.stack([loss, delay, bandwidth, failures, sure, bandwidth_sure], axis=1)
    return Measured(first, second, values, round(begins.min()) if len(begins) else None)


def _worth(age_us: Floats, fresh_us: Floats, failures: Floats) -> Floats:
    """As in `rm.core.model.network`: 1 when measured lately and with success, halved by failures and age."""
    intervals = np.divide(age_us, fresh_us, out=np.zeros_like(age_us), where=fresh_us > 0)
    late = np.maximum(0.0, intervals - GRACE_INTERVALS)
    worth: Floats = FAILED_TRY ** np.minimum(failures, 64.0) * 0.5 ** np.minimum(late / HALVING_INTERVALS, 64)
    return worth
