"""What of each limit is set aside for jobs that stand before others.

The first job that waits for a limit, and each that has a reservation of GPUs, is expected to start at some
time. From then until its end its amount of all limits that it is under is set aside: a later job starts only
if it has ended by then, or if enough is left of each limit. Without that, later jobs of an account could keep
a large one waiting for ever. Backfilling (see `rm.core.scheduling.ahead`) with a limit in place of the GPUs.

Of minutes a job has the most at its start, and less with each minute (`rm.core.scheduling.limits.in_use`).
Of billing minutes it has used some when it has ended: who ends in time delays others there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rm.core.model.job import Job
from rm.core.scheduling.limits.in_use import EPSILON, Claim, MinutesUse, Use, amount_at, run_of
from rm.core.scheduling.running import UNKNOWN_US, Running
from rm.core.sharing.limits import AT_ONCE, USED
from rm.core.sharing.resources import Resources, at_once
from rm.core.sharing.shares import Shares
from rm.core.sharing.tally import BY_TIME, Key, Ruled
from rm.core.sharing.usage import Usage

MEASURES = frozenset(AT_ONCE) | {USED}


@dataclass(slots=True)
class Portion:
    """What the pending job `number` has from `at_us` to `until_us`."""

    number: int
    claim: Claim
    at_us: int
    until_us: int


class Short(NamedTuple):
    """Of which limit there would be too little for whose portion."""

    key: Key
    measure: str
    portion: Portion


class Aside:
    """Of one pass. `running`: what runs, with what the pass placed; `until_us`: when a pending job is over
    that starts then, None: now; `claim`: what a job has that has these resources under these limits."""

    def __init__(
        self,
        shares: Shares,
        jobs: Mapping[int, Job],
        now_us: int,
        running: Callable[[], Running],
        until_us: Callable[[Job, int | None], int],
        claim: Callable[[Job, Ruled, Resources], Claim],
    ) -> None:
        self._shares, self._jobs, self._now_us = shares, jobs, now_us
        self._limits, self._half_life_us = shares.tally.limits, shares.ledger.billing.half_life_us
        self.until_us = until_us
        self._running, self._claim = running, claim
        self._asked: list[tuple[int, Job, Claim, int]] = []  # not reckoned yet
        self._portions: list[Portion] = []
        self._totals: dict[tuple[Key, str], float] = {}
        self._set_aside: dict[tuple[Key, str, int], float] = {}  # of the portions together, by the time
        self.first: set[Key] = set()  # for a limit of these somebody waits already
        self._uses: dict[tuple[Key, str], Use | MinutesUse] = {}
        self._placed: dict[Key, list[tuple[int, Claim]]] = {}  # by this pass
        self._before: dict[Key, list[tuple[int, Claim]]] | None = None

    # -- who stands before others ------------------------------------------------------------

    def waits(self, number: int, job: Job, least: Claim, key: Key) -> None:
        """It is the first that waits for a limit of that key."""
        self.first.add(key)
        self.reserved(number, job, least, self._now_us)

    def reserved(self, number: int, job: Job, claim: Claim, at_us: int) -> None:
        """It does not start before that."""
        self._asked.append((number, job, claim, at_us))
        self._totals.clear()

    # -- who may start beside them -----------------------------------------------------------

    def total(self, key: Key, measure: str) -> float:
        """What is set aside of a limit for all together, whenever they start."""
        known = self._totals.get((key, measure))
        if known is None:
            claims = [claim for _, _, claim, _ in self._asked] + [one.claim for one in self._portions]
            known = sum(claim.at_start(measure) for claim in claims if key in claim.keys)
            self._totals[key, measure] = known
        return known

    def opens_us(self, job: Job, least: Claim) -> int:
        """From when on the limits are expected to let a job start, beside those for which some is set aside
        so far."""
        self._reckon()
        at_us = self._earliest_us(job, least, self._now_us)
        return UNKNOWN_US if at_us is None else at_us

    @property
    def reckons(self) -> bool:
        """Was anything asked for which it had to find what runs?"""
        return self._before is not None

    def against(self, job: Job, claim: Claim) -> Short | None:
        """What a job that starts now would have too little of; None: it delays nobody."""
        self._reckon()
        return self._short(claim, self._now_us, self.until_us(job, None))

    def placed(self, job: Job, claim: Claim) -> None:
        """It runs by this pass."""
        end_us = min(self.until_us(job, None), UNKNOWN_US)
        for key in claim.keys:
            self._placed.setdefault(key, []).append((end_us, claim))
            for measure in self._measures(key):
                if (use := self._uses.get((key, measure))) is not None:
                    use.add(end_us, claim, measure)

    # -- reckoning ---------------------------------------------------------------------------

    def _measures(self, key: Key) -> Iterator[str]:
        return (measure for measure in self._limits[key] if measure in MEASURES)

    def _reckon(self) -> None:
        """When those start whose portions were asked for, in order, each beside those before it."""
        for number, job, claim, after_us in self._asked:
            at_us = self._earliest_us(job, claim, after_us)
            if at_us is not None:
                self._portions.append(Portion(number, claim, at_us, self.until_us(job, at_us)))
                self._set_aside.clear()
        self._asked.clear()

    def _earliest_us(self, job: Job, claim: Claim, after_us: int) -> int | None:
        """From when on there is enough of all limits until its end; None: never."""
        for key in claim.keys:
            for measure in self._measures(key):
                if not (amount := claim.at_start(measure)):
                    continue
                free_us = self._use(key, measure).leaves_us(self._limits[key][measure] - amount)
                if free_us is None:
                    return None
                after_us = max(after_us, free_us)
        mine = set(claim.keys)
        times = {after_us}
        for one in self._portions:
            if not mine.isdisjoint(one.claim.keys):
                times.add(min(one.until_us, UNKNOWN_US))
        if len(times) > 1:  # where only portions stand against it, also an end of what runs may help
            times.update(end_us for key in claim.keys for end_us, _ in self._runs(key))
            times.add(self._decayed_us(claim, max(times)))
        for at_us in sorted(at_us for at_us in times if at_us >= after_us):
            if self._short(claim, at_us, self.until_us(job, at_us)) is None:
                return at_us
        return None

    def _decayed_us(self, claim: Claim, over_us: int) -> int:
        """From when on enough of all billing minutes has decayed, when all others are over then."""
        at_us, half_life_us = over_us, self._half_life_us
        for key in claim.keys if half_life_us and over_us < UNKNOWN_US else ():
            if USED not in self._limits[key] or (room := self._room(key, claim)) <= 0:
                continue
            left, then_us = self._in_use(key, USED, over_us), over_us
            while left > room:
                left, then_us = left / 2, then_us + half_life_us
            at_us = max(at_us, then_us)
        return at_us

    def _room(self, key: Key, claim: Claim) -> float:
        return self._limits[key][USED] - claim.at_start(USED)

    def _short(self, claim: Claim, start_us: int, until_us: int) -> Short | None:
        """Is there too little for this and all others together when a portion begins, or beside one at the
        start?"""
        for one in self._portions:
            meet = start_us < one.until_us and one.at_us < until_us
            at_us = max(one.at_us, start_us)
            for key in (key for key in claim.keys if key in one.claim.keys):
                for measure in self._measures(key):
                    if not meet and measure != USED:
                        continue
                    amount = self._amount_at(measure, claim, start_us, until_us, at_us)
                    if amount and self._in_use(key, measure, at_us) + amount > self._most(key, measure):
                        return Short(key, measure, one)
        return None

    def _most(self, key: Key, measure: str) -> float:
        return self._limits[key][measure] + (EPSILON if measure in BY_TIME else 0)

    def _in_use(self, key: Key, measure: str, at_us: int) -> float:
        """By what runs, and by the portions."""
        known = self._set_aside.get((key, measure, at_us))
        if known is None:
            known = self._set_aside[key, measure, at_us] = sum(
                self._amount_at(measure, one.claim, one.at_us, one.until_us, at_us)
                for one in self._portions
                if key in one.claim.keys
            )
        return self._use(key, measure).at(at_us) + known

    def _amount_at(self, measure: str, claim: Claim, start_us: int, end_us: int, at_us: int) -> float:
        return amount_at(measure, claim, start_us, end_us, at_us, self._half_life_us)

    def _use(self, key: Key, measure: str) -> Use | MinutesUse:
        found = self._uses.get((key, measure))
        if found is None:
            found = self._uses[key, measure] = self._found(key, measure)
        return found

    def _found(self, key: Key, measure: str) -> Use | MinutesUse:
        now_us, runs = self._now_us, self._runs(key)
        if measure not in BY_TIME:
            return Use(sorted((end_us, at_once(claim.has, measure)) for end_us, claim in runs))
        used = Usage(self._shares.used_by(key), 0.0, now_us) if measure == USED else None
        minutes = [run_of(end_us, claim, measure, now_us) for end_us, claim in runs]
        return MinutesUse(minutes, now_us, used, self._half_life_us)

    def _runs(self, key: Key) -> list[tuple[int, Claim]]:
        """What has how much of it until when; of a slice it is known by its first element."""
        if self._before is None:
            running, jobs = self._running(), self._jobs
            ends: dict[int, int] = {}
            for number, end_us in running.ends():
                name = jobs[number].slice_of or number
                ends[name] = max(end_us, ends.get(name, end_us))
            self._before = {}
            for number, (ruled, has) in self._shares.tally.holds.items():
                if number not in jobs:
                    continue
                claim = self._claim(jobs[number], ruled, has)
                for one in ruled.keys:
                    self._before.setdefault(one, []).append((ends.get(number, UNKNOWN_US), claim))
        return self._before.get(key, []) + self._placed.get(key, [])
