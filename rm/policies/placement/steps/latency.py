"""Latency scores: how far a host is from the tasks that a task talks to.

Source: Metronome, Algorithm 1 lines 1-3 and eq. 19 (R18, R19).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rm.policies.placement.steps.gang import Ints
from rm.policies.placement.steps.network_score import Floats


def raw_latency(delays_us: Floats, dependents: Sequence[int]) -> Floats:
    """Delta of every host: the sum of its delays to the hosts of the dependent tasks placed so far.

    Without any (and for LowComm tasks, for which the caller passes none) the mean delay to all
    hosts, itself included. `delays_us` is symmetric with 1 on its diagonal.
    """
    if dependents:
        total: Floats = delays_us[list(dependents)].sum(axis=0)
        return total
    mean: Floats = delays_us.mean(axis=0)
    return mean


def normalized(raw: Floats, low: float, high: float) -> Ints:
    """Eq. 19: 100 for the least delay of all hosts, 0 for the greatest, rounded up (R19)."""
    if high <= low:
        return np.full(len(raw), 100, dtype=np.int64)
    return 100 - np.floor(100 * (raw - low) / (high - low)).astype(np.int64)
