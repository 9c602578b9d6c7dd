"""How long iterations take on a link that nobody manages, by playing it; of many jobs by what they meet on
average.

Ours, by the model of the simulator's `rm.sim.network.fluid`: flows under way share the link max-min fairly,
each up to the rate of its phase. Jobs compute between their phases as long as their profiles say, and begin
at other times in each of some arrangements, all of which are played at once.

Limits: one link, on which what the jobs do elsewhere is not seen; no jitter; all flows alike, as if TCP were
fair at once. `python -m bench unmanaged` compares it with the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.mean_value import mean_periods
from rm.policies.interleave.profile import Phases

Floats = NDArray[np.float64]
PLAYED_MOST = 12  # jobs on the link: with more of them, what one meets differs little from the mean
STARTS = 64  # arrangements of the first iterations
SETTLED = 4  # iterations in which a job finds its place among the others
ROUNDS = 12  # until this one of the slowest job they count
STEPS_MOST = 6_000  # begins and ends of phases that are played in each arrangement
SAME_TIME = 1e-6  # ticks: ends that are closer fall together


def unmanaged_periods(load: LinkLoad, periods: Mapping[int, int]) -> dict[int, int]:
    """The mean iteration of each job of the link, in ticks, never below its own period.

    `periods`: how long an iteration takes alone. Not played, but known from mean values, is a link with more
    than `PLAYED_MOST` jobs, or with jobs' periods that differ so much that the slowest does not come far in
    `STEPS_MOST` steps.
    """
    order = sorted(load.phases, key=lambda job: (periods[job], load.phases[job], job))
    jobs = tuple((periods[job], load.phases[job]) for job in order)
    return dict(zip(order, _estimated(jobs, load.capacity), strict=True))


@lru_cache(maxsize=1024)
def _estimated(jobs: tuple[tuple[int, Phases], ...], capacity: int) -> tuple[int, ...]:
    """Of (period, canonical phases) the mean iterations."""
    slowest = max(period for period, _ in jobs)
    steps = ROUNDS * sum((len(phases) + 1) * slowest // period for period, phases in jobs)
    known = played(jobs, capacity) if len(jobs) <= PLAYED_MOST and steps <= STEPS_MOST else ()
    return known or mean_periods(jobs, capacity)


def played(jobs: tuple[tuple[int, Phases], ...], capacity: int) -> tuple[int, ...]:
    """() where the slowest does not come far enough."""
    alone = np.array([period for period, _ in jobs], dtype=float)
    means = _means(_Stages(jobs, capacity), _starts(len(jobs)) * alone)
    if means is None:
        return ()
    return tuple(round(max(mean, period)) for mean, period in zip(means, alone, strict=True))


def _starts(jobs: int) -> Floats:
    """By arrangement and job, in parts of its period: a Latin hypercube, in which the first job stays where
    it is and each other one begins once in each part of its period. The same for the same count."""
    chance = np.random.default_rng(0)
    strata = chance.permuted(np.tile(np.arange(STARTS), (jobs, 1)), axis=1).T
    starts: Floats = (strata + chance.random(jobs)) / STARTS
    starts[:, 0] = 0.0
    return starts


class _Stages:
    """What each job does one after the other, as arrays by job and stage; stage 0 is the wait for its start.

    `amount` is ticks of computing, or of the whole link; `rate` the most that it takes of the link, 0: it
    computes. `then` is the stage that follows, and `ends` says that an iteration ends with it.
    """

    def __init__(self, jobs: Sequence[tuple[int, Phases]], capacity: int) -> None:
        lists = [[(0.0, 0.0), *_cycle(period, phases, capacity)] for period, phases in jobs]
        shape = len(jobs), max(map(len, lists))
        self.amount, self.rate = np.zeros(shape), np.zeros(shape)
        self.then, self.ends = np.ones(shape, dtype=int), np.zeros(shape, dtype=bool)
        for job, stages in enumerate(lists):
            self.amount[job, : len(stages)], self.rate[job, : len(stages)] = zip(*stages, strict=True)
            self.then[job, : len(stages) - 1] = range(1, len(stages))
            self.ends[job, len(stages) - 1] = True


def _cycle(period: int, phases: Phases, capacity: int) -> list[tuple[float, float]]:
    """(amount, rate) of the stages of one iteration, without empty ones."""
    stages: list[tuple[float, float]] = []
    marks = [(0, 0), *((offset, offset + length) for offset, length, _ in phases), (period, period)]
    for ((_, ended), (begins, _)), phase in zip(pairwise(marks), [*phases, None], strict=True):
        if begins > ended:
            stages.append((float(begins - ended), 0.0))
        if phase is not None:
            share = phase[2] / capacity
            stages.append((phase[1] * share, share))
    return stages


def _means(stages: _Stages, starts: Floats) -> Floats | None:
    """The mean iteration of each job over all arrangements; `starts`: by arrangement and job."""
    jobs = np.arange(starts.shape[1])
    at = np.zeros(starts.shape, dtype=int)
    count = np.zeros(starts.shape, dtype=int)
    left, since, until = starts.copy(), np.zeros(starts.shape), np.zeros(starts.shape)
    now = np.zeros((len(starts), 1))
    for _ in range(STEPS_MOST):
        wanted = stages.rate[jobs, at]
        speed = np.where(wanted > 0, np.minimum(wanted, _level(wanted)), 1.0)
        lasts = left / speed
        step = lasts.min(axis=1, keepdims=True)
        now += step
        over = lasts <= step + SAME_TIME
        ended = over & stages.ends[jobs, at]
        at = np.where(over, stages.then[jobs, at], at)
        left = np.where(over, stages.amount[jobs, at], left - step * speed)
        if ended.any():
            count += ended
            since = np.where(ended & (count == SETTLED), now, since)
            until = np.where(ended, now, until)
            if count.min() >= ROUNDS:
                means: Floats = ((until - since) / (count - SETTLED)).mean(axis=0)
                return means
    return None


def _level(wanted: Floats) -> Floats:
    """What nobody gets more of, so that all together take the whole link: by arrangement."""
    ordered = np.sort(wanted, axis=1)
    taken = np.cumsum(ordered, axis=1) - ordered
    levels: Floats = ((1.0 - taken) / np.arange(wanted.shape[1], 0, -1)).max(axis=1, keepdims=True)
    return levels
