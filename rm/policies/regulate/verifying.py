"""Verified speed-up, or roll-back: jobs that are slower managed than left alone are left alone.

Ours, not a paper's: rotations and classes follow from profiles, which may be wrong, and from a model of the
link, which is never all of it. So what they bring is measured. Groups of jobs that share links are judged
together, by the iterations of the slowest (where some have high priority, of the slowest of these, since the
others are to give way), as a multiple of the period that its profile promises.

A group that is slower than `verify_slow` over `verify_periods` iterations of its fastest job is released, and
as many are measured without any management: the baseline. If they are shorter by `verify_margin`, the group
stays released for `verify_again_min` minutes and is then tried again, after each further failure for twice as
long; otherwise it is managed, and released again only if it comes to lose more than that baseline, which
holds for as many minutes. Where iterations are long, so are these times (`RARELY`). A state machine over
reports; time enters as an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from rm.core.model.network.alignment import Alignment, Released
from rm.policies.regulate.controller import ControllerOptions
from rm.policies.regulate.iterating import Iterating
from rm.units import MINUTE_US

LEAST = 10  # iterations of a job that tell how long they take
SLOWEST_LEFT_OUT = 10  # one iteration in ten may be slow, such as one that writes a checkpoint
RARELY = 20  # times as long as it was measured its result holds, at least: iterations may last minutes
LONGEST_US = 60 * MINUTE_US
HARM_MOST = 0.15  # of its period, that management may cost one job so that the slowest of its group gains
LONGEST_TIMES = 16  # of `verify_again_min`, until a group that fails again and again is tried once more


@dataclass(frozen=True, slots=True)
class Release:
    """Leave these jobs alone."""

    released: Released


@dataclass(frozen=True, slots=True)
class Manage:
    """Manage these jobs again."""

    jobs: tuple[int, ...]
    why: str


Judgement = Release | Manage


class _Phase(StrEnum):
    MANAGED = "MANAGED"
    MEASURED = "MEASURED"  # released, to know what they take without
    RELEASED = "RELEASED"


@dataclass(slots=True)
class _Trial:
    """One group. Of each judged job how many times as long as alone it takes: `managed`, as last measured,
    and `baseline`, without it, measured at `since_us`. `lasted`: the newest iterations of each job."""

    periods_us: Mapping[int, int]
    attempts: tuple[int, ...]
    judged: tuple[int, ...]
    lasted: dict[int, deque[int]]
    skip: dict[int, int] = field(default_factory=dict)
    phase: _Phase = _Phase.MANAGED
    managed: Mapping[int, float] = field(default_factory=dict)
    baseline: Mapping[int, float] | None = None
    since_us: int = 0
    until_us: int = 0
    failed: int = 0

    def same(self, other: _Trial) -> bool:
        return (self.periods_us, self.attempts) == (other.periods_us, other.attempts)


class Verifier:
    """Judges any number of groups."""

    def __init__(self, options: ControllerOptions) -> None:
        self._options = options
        self._trials: dict[tuple[int, ...], _Trial] = {}
        self._of: dict[int, tuple[int, ...]] = {}
        # at times from the one until the other nobody who is left alone is due; None: to be found out
        self._quiet_us: tuple[float, float] | None = None

    def aligned(self, alignment: Alignment, running: Mapping[int, Iterating]) -> list[Judgement]:
        """A new plan: groups that are as they were go on, of others what was measured is void."""
        trials: dict[tuple[int, ...], _Trial] = {}
        for jobs in alignment.together if self._options.verify else ():
            made = self._trial(jobs, running)
            if made is None:
                continue
            old = self._trials.get(jobs)
            trials[jobs] = old if old is not None and old.same(made) else made
        self._trials, self._quiet_us = trials, None
        self._of = {job: jobs for jobs in trials for job in jobs}
        managed = (jobs for jobs, trial in trials.items() if trial.phase is _Phase.MANAGED)
        void = set(managed) & {one.jobs for one in alignment.released}
        return [Manage(jobs, "what was measured is of other attempts or profiles") for jobs in sorted(void)]

    def report(self, job: int, duration_us: int, now_us: int) -> list[Judgement]:
        """One finished iteration, waiting included."""
        jobs = self._of.get(job)
        trial = self._trials[jobs] if jobs is not None else None
        if jobs is None or trial is None or trial.phase is _Phase.RELEASED:
            return self.passed(now_us)
        if trial.skip.get(job, 0) > 0:
            trial.skip[job] -= 1
            return self.passed(now_us)
        trial.lasted[job].append(duration_us)
        counts = [len(lasted) for lasted in trial.lasted.values()]
        if max(counts) >= self._options.verify_periods and min(counts) >= LEAST:
            return [*self._judge(jobs, trial, now_us), *self.passed(now_us)]
        return self.passed(now_us)

    def passed(self, now_us: int) -> list[Judgement]:
        """It is so late now: who was left alone for long enough?"""
        if self._quiet_us is not None and self._quiet_us[0] <= now_us < self._quiet_us[1]:
            return []  # each iteration of each job asks
        orders: list[Judgement] = []
        since_us, until_us = -inf, inf
        for jobs, trial in self._trials.items():
            if trial.phase is not _Phase.RELEASED:
                continue
            # a clock that was set back must not keep jobs alone for long
            if not trial.since_us <= now_us < trial.until_us:
                self._turn(trial, _Phase.MANAGED)
                orders.append(Manage(jobs, "its time without is over"))
                continue
            since_us, until_us = max(since_us, trial.since_us), min(until_us, trial.until_us)
        self._quiet_us = since_us, until_us
        return orders

    def _trial(self, jobs: tuple[int, ...], running: Mapping[int, Iterating]) -> _Trial | None:
        """None: not all of them run, or say how long an iteration is alone."""
        known = {job: running[job] for job in jobs if job in running}
        periods_us = {job: one.period_us for job, one in known.items() if one.period_us}
        if len(periods_us) < len(jobs):
            return None
        high = tuple(job for job, one in known.items() if one.high)
        made = _Trial(
            periods_us,
            tuple(one.attempt for one in known.values()),
            high or jobs,
            {job: deque(maxlen=self._options.verify_periods) for job in jobs},
        )
        self._turn(made, _Phase.MANAGED)
        return made

    def _turn(self, trial: _Trial, phase: _Phase) -> None:
        trial.phase = phase
        for job, lasted in trial.lasted.items():
            lasted.clear()
            trial.skip[job] = self._options.cooldown

    def _judge(self, jobs: tuple[int, ...], trial: _Trial, now_us: int) -> list[Judgement]:
        options = self._options
        took = {job: _typical(trial.lasted[job]) / trial.periods_us[job] for job in trial.judged}
        slowest = max(took.values())
        for lasted in trial.lasted.values():
            lasted.clear()
        if trial.phase is _Phase.MANAGED:
            if not trial.since_us <= now_us < trial.until_us:
                trial.baseline = None  # it was measured long ago
            known = trial.baseline or {}
            usual = max(known.values(), default=0.0) + options.verify_margin
            if slowest <= max(options.verify_slow, usual) and self._harmed(took, known) is None:
                trial.failed = 0
                return []
            trial.managed, trial.since_us = took, now_us
            self._turn(trial, _Phase.MEASURED)
            return [Release(Released(jobs, slowest))]
        managed = max(trial.managed.values())
        harmed = self._harmed(trial.managed, took)
        better = slowest < managed - options.verify_margin
        times = min(1 << trial.failed, LONGEST_TIMES) if better or harmed is not None else 1
        measured_us = min(now_us - trial.since_us, LONGEST_US)  # by a clock that may have been set meanwhile
        holds_us = max(options.verify_again_min * MINUTE_US, RARELY * measured_us)
        trial.baseline, trial.since_us = took, now_us
        trial.until_us = now_us + round(times * holds_us)
        if better or harmed is not None:
            trial.failed += times < LONGEST_TIMES  # 1: for the first time in a row
            trial.phase, self._quiet_us = _Phase.RELEASED, None
            if harmed is not None and not better:
                managed, slowest = trial.managed[harmed], took[harmed]
            return [Release(Released(jobs, managed, slowest, trial.until_us, trial.failed))]
        self._turn(trial, _Phase.MANAGED)
        return [Manage(jobs, f"without, the slowest job took {slowest:.2f} times as long as alone")]

    def _harmed(self, managed: Mapping[int, float], baseline: Mapping[int, float]) -> int | None:
        """The job that loses most by management, if that is too much."""
        lost = {job: managed[job] - took for job, took in baseline.items()}
        most = max(lost, key=lost.__getitem__, default=None)
        if most is None or lost[most] <= HARM_MOST or managed[most] <= self._options.verify_slow:
            return None
        return most


def _typical(lasted: deque[int]) -> float:
    """The mean without the slowest few."""
    kept = sorted(lasted)[: len(lasted) - len(lasted) // SLOWEST_LEFT_OUT]
    return sum(kept) / len(kept)
