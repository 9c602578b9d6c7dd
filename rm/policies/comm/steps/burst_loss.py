"""What first come, first served on a link costs its slowest job, by playing it."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache

from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.profile import Phases
from rm.policies.interleave.unify import Demand

ROUNDS = 24  # iterations of the slowest job; the first half finds its order
STARTS = 3  # arrangements of the first iterations
MOST_BURSTS = 4_000  # of all jobs in those rounds
GOLDEN = (math.sqrt(5) - 1) / 2
SILVER = math.sqrt(2) - 1


def is_playable(link: LinkLoad, demands: Mapping[int, Demand]) -> bool:
    """Do the jobs make few enough bursts? Beside a job with a period of an hour those of milliseconds make
    millions, for each of which something is computed."""
    longest = max(demands[job].period for job in link.phases)
    each = (len(phases) * ROUNDS * longest / demands[job].period for job, phases in link.phases.items())
    return sum(each) <= MOST_BURSTS


def burst_loss(
    link: LinkLoad, demands: Mapping[int, Demand], high: Container[int], varies: float = 0.0
) -> float:
    """The share of its period by which the slowest job's iterations grow, in the mean of some arrangements of
    their starts; bursts of high jobs come first.

    `varies`: the standard deviation of what jobs compute before an iteration's first burst, as a share.
    Without it they iterate exactly as profiled, and may stay in an order that the first late one ends.
    """
    order = sorted(link.phases, key=lambda job: (demands[job].period, link.phases[job]))
    jobs = tuple((demands[job].period, link.phases[job], job in high) for job in order)
    return _played(jobs, link.capacity, varies)


@lru_cache(maxsize=1024)
def _played(jobs: tuple[tuple[int, Phases, bool], ...], capacity: int, varies: float) -> float:
    return sum(_slowest(jobs, capacity, start, varies) for start in range(STARTS)) / STARTS


def _slowest(
    jobs: Sequence[tuple[int, Phases, bool]], capacity: int, arrangement: int, varies: float
) -> float:
    longest = max(period for period, _, _ in jobs)
    playing = []
    for number, (period, phases, high) in enumerate(jobs):
        part = (GOLDEN * (number + 1) * (arrangement + 1)) % 1
        playing.append(_Job(period, phases, high, part * period, (varies, number + 1)))
    until, now = ROUNDS * longest, 0.0
    while now < until:
        left, step = float(capacity), math.inf
        for job in sorted(playing, key=lambda one: one.place):
            if job.left > 0:  # it communicates
                job.got = min(float(job.rate), left)
                left -= job.got
                if job.got > 0:
                    step = min(step, job.left / job.got)
            else:
                step = min(step, job.next - now)
        now += step
        for job in playing:
            job.go_on(now, step, until / 2)
    return max(job.loss(now) for job in playing)


class _Job:
    """Its next phase begins at `next` if nothing of one is `left`, in capacity times ticks. `noise`: how much
    what it computes varies, and its number among the jobs, with which it has a sequence of its own."""

    def __init__(
        self, period: int, phases: Phases, high: bool, start: float, noise: tuple[float, int]
    ) -> None:
        self.period, self.high = period, high
        self._varies, self._number = noise
        self._begun = 0
        self.left = self.got = 0.0
        self.place: tuple[bool, float] = (False, 0.0)
        self._stages = [(offset, length, rate) for offset, length, rate in phases]
        self._at, self._origin = 0, start
        self.rate = 0
        self.next = start + self._stages[0][0]
        self._counted_from = self._counted = 0.0
        self._alone, self._alone_next = 0.0, float(period)  # of what was counted, and of this iteration

    def go_on(self, now: float, step: float, settled: float) -> None:
        if self.left > 0:
            self.left -= self.got * step
            if self.left > 1e-6 * self.rate:
                return
            self.left = 0.0
            self._ended(now, settled)
        elif self.next <= now + 1e-6:
            _, length, self.rate = self._stages[self._at]
            self.left, self.place = float(length * self.rate), (not self.high, now)

    def _ended(self, now: float, settled: float) -> None:
        """To the next phase: as long after this one as in the profile."""
        offset, length, _ = self._stages[self._at]
        self._at += 1
        if self._at == len(self._stages):
            self._at = 0
            computes = self.period - (offset + length) + self._stages[0][0]
            more, alone = max(-computes, computes * self._varies * self._chance()), self._alone_next
            self.next, self._alone_next = now + computes + more, self.period + more
            if now >= settled:
                if not self._counted_from:
                    self._counted_from = now
                else:
                    self._alone += alone
                    self._counted = now
        else:
            self.next = now + self._stages[self._at][0] - (offset + length)

    def _chance(self) -> float:
        """Of mean 0 and standard deviation 1, in the same order each time: the sum of two even sequences."""
        self._begun += 1
        one = GOLDEN * self._begun * (2 * self._number + 1) % 1
        other = SILVER * self._begun * self._number % 1
        return (one + other - 1) * math.sqrt(6)

    def loss(self, now: float) -> float:
        if not self._alone:
            return math.inf
        return (self._counted - self._counted_from) / self._alone - 1
