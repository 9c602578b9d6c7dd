"""Mean and spread over seeds, and paired changes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (n − 1); the spread of one value is 0."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def reduction_pct(before: float, after: float) -> float:
    """By how many percent of `before` `after` is smaller; of two results of one seed, a paired gain."""
    return 100.0 * (before - after) / before
