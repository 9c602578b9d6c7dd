"""How much loss `lost` of `sent` packets show: one-sided bounds at a stated confidence.

Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
binomial", Biometrika 26 (1934). Packets of one try are not independent (a link is dead for a second, and
all are lost): `rm.core.monitoring.cells` asks for several tries with losses besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

CONFIDENCE = 0.99
HALVINGS = 40  # of the interval in which a bound is looked for
NEGLIGIBLE = 1e-9  # what a term adds, from which on the rest is left out


@lru_cache(maxsize=4096)
def at_least_pct(lost: int, sent: int) -> float:
    """The largest loss in percent that the lost packets show, with CONFIDENCE: 0 if none was lost."""
    if lost <= 0:
        return 0.0
    return 100.0 * _root(lambda p: _upper_tail(lost, sent, p) <= 1 - CONFIDENCE, 0.0, lost / sent)


@lru_cache(maxsize=4096)
def at_most_pct(lost: int, sent: int) -> float:
    """The smallest loss in percent that so few lost packets rule out to be exceeded, with CONFIDENCE."""
    if lost >= sent:
        return 100.0
    return 100.0 * _root(lambda p: _upper_tail(lost + 1, sent, p) < CONFIDENCE, lost / sent, 1.0)


def _root(below: Callable[[float], bool], low: float, high: float) -> float:
    """Where `below`, which holds for small shares, ceases to."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return low


def _upper_tail(least: int, sent: int, share: float) -> float:
    """The probability that `least` or more of `sent` packets are lost, each with the probability `share`."""
    if least <= 0 or share >= 1.0:
        return 1.0
    if share <= 0.0:
        return 0.0
    if least > sent * share:
        return _from(least, sent, share, 1)
    return 1.0 - _from(least - 1, sent, share, -1)


def _from(first: int, sent: int, share: float, step: int) -> float:
    """The probabilities of `first` lost packets and of more (step 1) or fewer (-1), all together; they fall
    from the first on."""
    log_first = (
        math.lgamma(sent + 1)
        - math.lgamma(first + 1)
        - math.lgamma(sent - first + 1)
        + first * math.log(share)
        + (sent - first) * math.log1p(-share)
    )
    term, odds, total, lost = math.exp(log_first), share / (1 - share), 0.0, first
    while 0 <= lost <= sent and term > total * NEGLIGIBLE:
        total += term
        if step > 0:
            term *= (sent - lost) / (lost + 1) * odds
        else:
            term *= lost / ((sent - lost + 1) * odds)
        lost += step
    return total
