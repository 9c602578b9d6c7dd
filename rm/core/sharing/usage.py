"""What was used, decayed: a job that ran a half-life ago counts half.

The usage of an account and user grows by what their jobs hold, weighted, and decays all the time:
dU/dt = rate - U ln 2 / half-life. Between two changes of the rate the solution is exact, so that nothing
depends on how often anybody looks. Source of the decay: Slurm's multifactor priority, PriorityDecayHalfLife.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """`amount` (weighted resource-seconds) at `at_us`, and what runs adds `rate` in each second."""

    amount: float = 0.0
    rate: float = 0.0
    at_us: int = 0

    def at(self, now_us: int, half_life_us: int) -> float:
        """The amount at a later time. `half_life_us` 0: nothing decays."""
        passed_us = max(0, now_us - self.at_us)
        if not half_life_us:
            return self.amount + self.rate * passed_us / 1e6
        decay_per_s = math.log(2) / (half_life_us / 1e6)
        left: float = 0.5 ** (passed_us / half_life_us)
        return self.amount * left + self.rate / decay_per_s * -math.expm1(-decay_per_s * passed_us / 1e6)

    def changed(self, by_rate: float, now_us: int, half_life_us: int) -> Usage:
        """From now on `by_rate` more is added."""
        return Usage(self.at(now_us, half_life_us), self.rate + by_rate, max(now_us, self.at_us))


UNUSED = Usage()
