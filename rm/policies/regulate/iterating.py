"""What regulation knows of a running job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Iterating:
    """A running job that may have a slot.

    `compute_us`: computing per iteration by its profile; `next_start_us`: when its next iteration is
    expected to begin; `period_us`: of an iteration alone, `peak_bps`: its highest rate, by its profile.
    None = not known.
    """

    attempt: int
    compute_us: int | None = None
    next_start_us: int | None = None
    period_us: int | None = None
    high: bool = False
    peak_bps: int | None = None
