"""How much of a limit is in use from now on: by what runs, until it is expected to end.

Minutes are in use until the time limits of what runs, so that they fall while nothing happens. Billing
minutes have been used as well, which decays (see `rm.core.sharing.usage`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple

from rm.core.sharing.limits import USED
from rm.core.sharing.resources import Resources, at_once
from rm.core.sharing.tally import BY_TIME, Key
from rm.core.sharing.usage import UNUSED, Usage
from rm.units import MINUTE_US

_END = itemgetter(0)
EPSILON = 1e-6  # what sums of the same minutes may differ by


class Claim(NamedTuple):
    """What a job has of the limits of `keys`. Where one of them is of minutes also what it counts for in each
    second, and how long (microseconds) its time limit lets it run at most."""

    keys: tuple[Key, ...]
    has: Resources
    billing: float = 0.0
    limit_us: int = 0

    def rate(self, measure: str) -> float:
        return self.billing if measure == USED else self.has.gpus

    def at_start(self, measure: str) -> float:
        """How much it has of a measure when it starts, which is the most."""
        if measure in BY_TIME:
            return self.rate(measure) * self.limit_us / MINUTE_US
        return at_once(self.has, measure)


class Use:
    """Of a limit of what is in use at the same time. `stays`: (end, amount), in order of the ends."""

    def __init__(self, stays: list[tuple[int, float]]) -> None:
        self._stays = stays
        self._from: list[float] = []  # what each has with all those that end later, and 0

    def add(self, end_us: int, claim: Claim, measure: str) -> None:
        insort(self._stays, (end_us, at_once(claim.has, measure)))
        self._from = []

    def at(self, at_us: int) -> float:
        if not self._from:
            amounts = (amount for _, amount in reversed(self._stays))
            self._from = list(accumulate(amounts, initial=0.0))[::-1]
        return self._from[bisect_right(self._stays, at_us, key=_END)]

    def leaves_us(self, most: float) -> int | None:
        """From when on no more than that is in use; None: it never is."""
        if most < 0:
            return None
        in_use = 0.0
        for end_us, amount in reversed(self._stays):
            in_use += amount
            if in_use > most:
                return end_us
        return 0


class _Stretch(NamedTuple):
    """From `at_us` to the next end of a job. `rate`: what all that run count for in each second; `left`: what
    they would until their time limits from now on; `used`: billing minutes that were used."""

    at_us: int
    rate: float
    left: float
    used: Usage


class MinutesUse:
    """Of a limit of minutes. `runs`: (end, rate, end of the time limit), `used` what counts already."""

    def __init__(
        self, runs: list[tuple[int, float, int]], now_us: int, used: Usage | None, half_life_us: int
    ) -> None:
        self._runs, self._now_us, self._half_life_us = sorted(runs), now_us, half_life_us
        self._used = used
        self._stretches: list[_Stretch] = []

    def add(self, end_us: int, claim: Claim, measure: str) -> None:
        insort(self._runs, run_of(end_us, claim, measure, self._now_us))
        self._stretches = []

    def at(self, at_us: int) -> float:
        known = self._known()
        return self._in(known[max(0, bisect_right(known, at_us, key=_END) - 1)], at_us)

    def leaves_us(self, most: float) -> int | None:
        """From when on no more than that is in use; None: it never is."""
        if most < 0:
            return None
        known = self._known()
        for one, after in pairwise(known):
            if self._in(one, after.at_us) <= most:
                return self._first_us(one, after.at_us, most)
            if self._in(after, after.at_us) <= most:
                return after.at_us
        last = known[-1]
        over = self._in(last, last.at_us)
        if over <= most:
            return last.at_us
        if not self._half_life_us or not most:
            return None
        end_us = last.at_us
        while over > most:
            over, end_us = over / 2, end_us + self._half_life_us
        return self._first_us(last, end_us, most)

    def _known(self) -> list[_Stretch]:
        if not self._stretches:
            now_us, used = self._now_us, self._used or UNUSED
            rate = sum(one for _, one, _ in self._runs)
            left = sum(one * (limit_us - now_us) for _, one, limit_us in self._runs)
            if self._used is not None:
                used = Usage(used.amount, rate, now_us)
            self._stretches.append(_Stretch(now_us, rate, left, used))
            for end_us, one, limit_us in self._runs:
                rate, left = rate - one, left - one * (limit_us - now_us)
                if self._used is not None:
                    used = used.changed(-one, end_us, self._half_life_us)
                self._stretches.append(_Stretch(end_us, rate, left, used))
            # without a job that runs it is nothing, and not what rounding has left
            last = self._stretches[-1]
            used = Usage(last.used.amount, 0.0, last.used.at_us)
            self._stretches[-1] = _Stretch(last.at_us, 0.0, 0.0, used)
        return self._stretches

    def _in(self, one: _Stretch, at_us: int) -> float:
        in_use = (one.left - one.rate * (at_us - self._now_us)) / MINUTE_US
        if self._used is not None:
            in_use += one.used.at(at_us, self._half_life_us) / 60
        return in_use

    def _first_us(self, one: _Stretch, last_us: int, most: float) -> int:
        """When it has fallen to that, which it has then at the latest."""
        first_us = one.at_us
        while first_us < last_us:
            middle_us = (first_us + last_us) // 2
            if self._in(one, middle_us) <= most:
                last_us = middle_us
            else:
                first_us = middle_us + 1
        return last_us


def run_of(end_us: int, claim: Claim, measure: str, now_us: int) -> tuple[int, float, int]:
    """What a job that runs from now on is in `MinutesUse`: it counts until its time limit at most."""
    limit_us = now_us + claim.limit_us
    return min(end_us, limit_us), claim.rate(measure), limit_us


def amount_at(measure: str, claim: Claim, start_us: int, end_us: int, at_us: int, half_life_us: int) -> float:
    """How much of a measure a job that runs from then to then has at a time; what has ended has used some of
    the billing minutes."""
    if measure not in BY_TIME:
        return at_once(claim.has, measure) if start_us <= at_us < end_us else 0.0
    rate = claim.rate(measure)
    if not rate or at_us < start_us:
        return 0.0
    limit_us = start_us + claim.limit_us
    end_us = min(end_us, limit_us)
    minutes = rate * (limit_us - at_us) / MINUTE_US if at_us < end_us else 0.0
    if measure == USED:
        used = Usage(rate=rate, at_us=start_us).changed(-rate, min(at_us, end_us), half_life_us)
        minutes += used.at(at_us, half_life_us) / 60
    return minutes
