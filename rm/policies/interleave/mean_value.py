"""How long iterations take on a link with many jobs that nobody manages, by what they meet on average.

Approximate mean value analysis of a closed network in which each job thinks (computes) and sends over a link
that is shared max-min fairly: a phase takes as long as the link would make it beside the others as they are
without this job (the arrival theorem), each of them sending for the part of its time that it sends in a
network of one job fewer. That is exact for the mean under processor sharing, whatever the distributions.
Sources: M. Reiser and S. Lavenberg, Mean-Value Analysis of Closed Multichain Queuing Networks (J. ACM 27,
1980); P. Schweitzer's fixed point for the networks with many fewer (1979).

Limits: those of `unmanaged`; and who sends at an instant is taken to be independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rm.policies.interleave.profile import Phases

Floats = NDArray[np.float64]
INSTANTS_MOST, INSTANTS_LEAST = 64, 8  # of which each says who sends then
AT_ONCE = 32_768  # phases of jobs that are looked at in a round: with more of them fewer instants will do
FIXED = 20  # rounds of the fixed point
EXACT = 16  # jobs that then come one by one


def mean_periods(jobs: Sequence[tuple[int, Phases]], capacity: int) -> tuple[int, ...]:
    """Of (period, canonical phases) the mean iterations, never below the periods."""
    alone = np.array([period for period, _ in jobs], dtype=float)
    link = _Link(jobs, capacity)
    count = len(jobs)
    few = max(1, count - EXACT)
    took = link.lengths
    for _ in range(FIXED):
        took = (took + link.beside(took / _periods(alone, took, link), few / count)) / 2
    for there in range(few, count):
        took = link.beside(took / _periods(alone, took, link), there / (count - 1))
    means = _periods(alone, took, link)[:, 0]
    return tuple(round(max(mean, period)) for mean, period in zip(means, alone, strict=True))


def _periods(alone: Floats, took: Floats, link: _Link) -> Floats:
    """Iterations in which phases take so long, as a column."""
    periods: Floats = (alone + (took - link.lengths).sum(axis=1))[:, None]
    return periods


class _Link:
    """`lengths` and `rates` of phases by job and phase, in ticks and parts of the link; where a job has fewer
    phases both are 0."""

    def __init__(self, jobs: Sequence[tuple[int, Phases]], capacity: int) -> None:
        count, most = len(jobs), max(len(phases) for _, phases in jobs)
        self.lengths, self.rates = np.zeros((count, most)), np.zeros((count, most))
        for job, (_, phases) in enumerate(jobs):
            for phase, (_, length, bandwidth) in enumerate(phases):
                self.lengths[job, phase], self.rates[job, phase] = length, bandwidth / capacity
        # By instant and job where in its iteration it is, and how many have to be there before it is: drawn
        # once, evenly over the instants, so that equal jobs differ and nothing depends on a draw.
        instants = max(INSTANTS_LEAST, min(INSTANTS_MOST, AT_ONCE // self.lengths.size))
        chance = np.random.default_rng(0)
        strata = chance.permuted(np.tile(np.arange(instants), (count, 1)), axis=1).T
        self._at: Floats = (strata + chance.random(count)) / instants
        self._order = chance.permuted(np.tile((np.arange(count) + 0.5) / count, (instants, 1)), axis=1)

    def beside(self, sends: Floats, part: float) -> Floats:
        """How long each phase takes beside others who are in each of their phases for that part of their
        time (`sends`); that part of the others is there."""
        wanted, upto = np.zeros(self._at.shape), np.zeros(self._at.shape[1])
        for phase in range(sends.shape[1]):
            since, upto = upto, upto + sends[:, phase]
            wanted = np.where((since <= self._at) & (self._at < upto), self.rates[:, phase], wanted)
        wanted = np.where(self._order < part, wanted, 0.0)
        got = np.where(wanted > 0, _level(wanted, 0), _level(wanted, 1))
        slower = [np.maximum(1.0, rates / got).mean(axis=0) for rates in self.rates.T]
        took: Floats = self.lengths * np.array(slower).T
        return took


def _level(wanted: Floats, more: int) -> Floats:
    """What nobody gets more of when those share the link, with `more` others who want all that they can
    get: by instant, as a column."""
    ordered = np.sort(wanted, axis=1)
    left = 1.0 - (np.cumsum(ordered, axis=1) - ordered)
    levels: Floats = (left / (np.arange(wanted.shape[1], 0, -1) + more)).max(axis=1, keepdims=True)
    if more:
        levels = np.maximum(levels, 1.0 - ordered.sum(axis=1, keepdims=True))
    return levels
