"""Links and the measured network: values that policies read and never fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class Link:
    """A link with a capacity. Host links bear the name of their host."""

    name: str
    capacity_bps: int


@dataclass(frozen=True, slots=True)
class LinkStats:
    """One measured direction src -> dst. None = not measured.

    Loss in percent, one-way delay in microseconds, throughput in bit/s; `measured_at_us` is
    the age's origin; `failures` counts failed tries since the last success.
    """

    loss_pct: float | None = None
    delay_us: int | None = None
    bandwidth_bps: int | None = None
    jitter_us: int | None = None
    measured_at_us: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class NetworkView:
    """Everything measured, by ordered pair of host names, and between zones.

    A missing pair means "never measured"; policies decide what that is worth.
    """

    pairs: Mapping[tuple[str, str], LinkStats] = field(default_factory=dict)

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
        )


def _worse(x: T | None, y: T | None, pick: Callable[[T, T], T]) -> T | None:
    if x is None or y is None:
        return y if x is None else x
    return pick(x, y)
