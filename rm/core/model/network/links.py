"""Links and the measured network: values that policies read and never fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rm.core.model.quickly_made import quickly_made

T = TypeVar("T", int, float)

# A measurement counts in full until the second one after it is overdue, so that one late test costs
# nothing; from then on its weight halves every HALVING_INTERVALS intervals between measurements.
GRACE_INTERVALS = 2
HALVING_INTERVALS = 30
FAILED_TRY = 0.5  # what a failed try leaves of the worth


@dataclass(frozen=True, slots=True)
class Link:
    """A link with a capacity. Host links bear the name of their host."""

    name: str
    capacity_bps: int


@dataclass(frozen=True, slots=True)
class LinkStats:
    """One measured direction src -> dst. None = not measured.

    Loss in percent, one-way delay in microseconds, throughput in bit/s; `measured_at_us` is
    the age's origin, and `bandwidth_at_us` the throughput's, which is measured seldom (0 = with
    the rest); `failures` counts failed tries since the last success. `fresh_us` and
    `bandwidth_fresh_us` are the intervals at which they were to be measured again (0 = never: such a
    measurement does not age).
    """

    loss_pct: float | None = None
    delay_us: int | None = None
    bandwidth_bps: int | None = None
    jitter_us: int | None = None
    measured_at_us: int = 0
    failures: int = 0
    fresh_us: int = 0
    bandwidth_at_us: int = 0
    bandwidth_fresh_us: int = 0


@quickly_made
@dataclass(frozen=True, slots=True)
class NetworkView:
    """Everything measured, by ordered pair of host names, and between zones, as of `now_us`.

    A missing pair means "never measured"; policies decide what that is worth.
    """

    pairs: Mapping[tuple[str, str], LinkStats] = field(default_factory=dict)
    now_us: int = 0

    def worst(self, a: str, b: str) -> LinkStats | None:
        """Both directions folded to the worse per metric (zone-first, Algorithm 2)."""
        one, two = self.pairs.get((a, b)), self.pairs.get((b, a))
        if one is None or two is None:
            return one or two
        return LinkStats(
            loss_pct=_worse(one.loss_pct, two.loss_pct, max),
            delay_us=_worse(one.delay_us, two.delay_us, max),
            bandwidth_bps=_worse(one.bandwidth_bps, two.bandwidth_bps, min),
            jitter_us=_worse(one.jitter_us, two.jitter_us, max),
            measured_at_us=min(one.measured_at_us, two.measured_at_us),
            failures=max(one.failures, two.failures),
            fresh_us=min(one.fresh_us, two.fresh_us),
            bandwidth_at_us=min(one.bandwidth_at_us, two.bandwidth_at_us),
            bandwidth_fresh_us=min(one.bandwidth_fresh_us, two.bandwidth_fresh_us),
        )

    def age_us(self, a: str, b: str) -> int | None:
        """Time since this direction was last measured with success; None = never."""
        stats = self.pairs.get((a, b))
        if stats is None or not stats.measured_at_us:
            return None
        return max(0, self.now_us - stats.measured_at_us)

    def confidence(self, a: str, b: str) -> float:
        """How far the loss and delay of this direction can be relied upon; 0 = never measured."""
        stats = self.pairs.get((a, b))
        return 0.0 if stats is None else confidence(stats, self.now_us)


def confidence(stats: LinkStats, now_us: int) -> float:
    """From 1, measured lately and with success, towards 0: of the loss and delay.

    Each failed try halves it, and so does every further span of HALVING_INTERVALS intervals in which
    nothing was measured. A clock that went back does not make a measurement younger than now.
    """
    if stats.loss_pct is None and stats.delay_us is None:
        return 0.0
    return _worth(now_us - stats.measured_at_us, stats.fresh_us, stats.failures)


def bandwidth_confidence(stats: LinkStats, now_us: int) -> float:
    """The same of the throughput, which ages by itself."""
    if stats.bandwidth_bps is None:
        return 0.0
    at_us = stats.bandwidth_at_us or stats.measured_at_us
    return _worth(now_us - at_us, stats.bandwidth_fresh_us, stats.failures)


def _worth(age_us: int, fresh_us: int, failures: int) -> float:
    worth = FAILED_TRY ** min(failures, 64)
    if fresh_us:
        late = max(0.0, age_us / fresh_us - GRACE_INTERVALS)
        worth *= 0.5 ** min(late / HALVING_INTERVALS, 64.0)
    return float(worth)


def _worse(x: T | None, y: T | None, pick: Callable[[T, T], T]) -> T | None:
    if x is None or y is None:
        return y if x is None else x
    return pick(x, y)
