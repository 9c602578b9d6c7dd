"""The measured network in points: pair scores and the accumulating choice of hosts.

Source: zone-first, Sec. 3.2, eqs. 1-4 and the node selection of Fig. 8 and Sec. 4.2 (R30-R34).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

LOSS_POINTS = 20.0
DELAY_POINTS = 40.0
DECIMALS = 9  # points are compared rounded: the order of summation must not break ties

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
F = TypeVar("F", float, Floats)


@dataclass(frozen=True, slots=True)
class NetworkWeights:
    """How loss, delay and bandwidth of a pair of hosts turn into points.

    `w_loss` points go per percent of loss (of 20), `w_delay` points per millisecond of one-way
    delay (of 40); a bandwidth of `ref_bandwidth_bps` or more earns `w_bandwidth` points, a part
    of it that part. `ref_bandwidth_bps` 0 = the fastest interface of the zone's hosts.

    A pair or metric never measured is taken at the median of those measured between the same
    zones, less `unmeasured_penalty` points (a third of them per missing metric): a host that
    was measured to be ordinary is preferred to an unknown one. Where nothing is
    measured yet, all pairs are alike. A pair whose last `dead_after_failures` tries failed has
    0 points.

    A host is a bad one when its link, taken at the median of its pairs, is more than
    `exclude_gap` points below the median host of its zone, or, where the zone has fewer than three
    measured hosts, of all zones. Jobs of several hosts get
    bad hosts only when no zone fits without.
    """

    w_loss: float = 2.0
    w_delay: float = 1.0
    w_bandwidth: float = 40.0
    ref_bandwidth_bps: int = 0
    unmeasured_penalty: float = 10.0
    dead_after_failures: int = 3
    exclude_gap: float = 15.0


def points(loss_pct: F, delay_us: F, bandwidth_bps: F, ref_bps: float, weights: NetworkWeights) -> F:
    """Score of a pair from its worse direction per metric, 0 to 100 by default weights (R30, R31)."""
    loss = np.maximum(0.0, LOSS_POINTS - weights.w_loss * loss_pct)
    delay = np.maximum(0.0, DELAY_POINTS - weights.w_delay * delay_us / 1_000)
    bandwidth = weights.w_bandwidth * np.minimum(1.0, bandwidth_bps / ref_bps)
    total: F = loss + delay + bandwidth
    return total


class Rows(Protocol):
    """Pair scores by host: a matrix, or rows that are computed when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, host: int, /) -> Floats: ...


def select(
    pair: Rows,
    need: int,
    eligible: Mask | None = None,
    anchor: Floats | None = None,
    start: int | None = None,
    allowed: Callable[[list[int]], Mask] | None = None,
) -> list[tuple[int, float]]:
    """Choose `need` hosts one after the other; returns (number, total when chosen).

    `pair` is symmetric with a zero diagonal; given an anchor or a start, only rows of chosen hosts
    are asked for, none after the last choice (Sec. 4.1). The first host is the best connected to `anchor`
    (its scores with each host), or `start`, or else the medoid: the one of the highest mean
    score. Each chosen host adds its pair scores to the totals of the rest and is excluded; the
    highest total is next, ties by list order (R32-R34). `allowed` narrows each choice, given
    those already chosen. Stops early when nothing is left.
    """
    if not len(pair):
        return []
    open_ = np.ones(len(pair), dtype=bool) if eligible is None else eligible.copy()
    total = np.zeros(len(pair)) if anchor is None else anchor.astype(float)
    chosen: list[tuple[int, float]] = []
    while len(chosen) < need:
        may = open_ if allowed is None else open_ & allowed([n for n, _ in chosen])
        first_of_all = not chosen and anchor is None
        if first_of_all and start is not None:
            pick, worth = start, 0.0
        else:
            value = medoid_means(np.asarray(pair), open_) if first_of_all else total
            pick = int(np.where(may, value.round(DECIMALS), -np.inf).argmax())
            worth = float(value[pick])
        if not may[pick] and not may.any():
            break
        chosen.append((pick, worth))
        open_[pick] = False
        if len(chosen) < need:
            total = total + pair[pick]
    return chosen


def medoid_means(pair: Floats, eligible: Mask) -> Floats:
    """Mean score of each host with the eligible others."""
    others = max(np.count_nonzero(eligible) - 1, 1)
    # no matrix product: a threaded one waits for busy cores longer than it computes
    means: Floats = np.add.reduce(pair[eligible], axis=0) / others
    return means
