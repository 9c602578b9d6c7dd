"""What of each limit is set aside for jobs that stand before others.

The first job that waits for a limit, and each that has a reservation of GPUs, is expected to start at some
time. From then until its end its amount of all limits that it is under is set aside: a later job starts only
if it has ended by then, or if enough is left of each limit. Without that, later jobs of an account could keep
a large one waiting for ever. Backfilling (see `rm.core.scheduling.ahead`) with a limit in place of the GPUs.

Limits that change while nothing happens (GPU minutes, billing minutes) are not set aside.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from rm.core.model.job import Job
from rm.core.scheduling.running import UNKNOWN_US, Running
from rm.core.sharing.limits import AT_ONCE
from rm.core.sharing.resources import Resources, at_once
from rm.core.sharing.tally import BY_TIME, Key, Tally

MEASURES = frozenset(AT_ONCE) - BY_TIME
_END = itemgetter(0)


@dataclass(slots=True)
class Portion:
    """What the pending job `number` has from `at_us` to `until_us`."""

    number: int
    keys: tuple[Key, ...]
    has: Resources
    at_us: int
    until_us: int


class Short(NamedTuple):
    """Of which limit there would be too little for whose portion."""

    key: Key
    measure: str
    portion: Portion


@dataclass(slots=True)
class Use:
    """Of one limit: what runs, by its expected end."""

    stays: list[tuple[int, float]] = field(default_factory=list)  # (end, amount), in order

    def at(self, at_us: int) -> float:
        begin = bisect_right(self.stays, at_us, key=_END)
        return sum(amount for _, amount in self.stays[begin:])

    def leaves_us(self, most: float) -> int | None:
        """From when on no more than that is in use; None: it never is."""
        if most < 0:
            return None
        in_use = 0.0
        for end_us, amount in reversed(self.stays):
            in_use += amount
            if in_use > most:
                return end_us
        return 0


class Aside:
    """Of one pass. `running`: what runs, with what the pass placed; `until_us`: when a pending job is over
    that starts then, None: now."""

    def __init__(
        self,
        tally: Tally,
        jobs: Mapping[int, Job],
        now_us: int,
        running: Callable[[], Running],
        until_us: Callable[[Job, int | None], int],
    ) -> None:
        self._tally, self._jobs, self._now_us = tally, jobs, now_us
        self._running, self._until_us = running, until_us
        self._asked: list[tuple[int, Job, tuple[Key, ...], Resources, int]] = []  # not reckoned yet
        self._portions: list[Portion] = []
        self.first: set[Key] = set()  # for a limit of these somebody waits already
        self._uses: dict[tuple[Key, str], Use] = {}
        self._placed: dict[Key, list[tuple[int, Resources]]] = {}  # by this pass
        self._before: dict[Key, list[tuple[int, Resources]]] | None = None
        # until when they would have stayed
        self._refused: dict[tuple[tuple[Key, ...], Resources], tuple[int, Short]] = {}

    # -- who stands before others ------------------------------------------------------------

    def waits(self, number: int, job: Job, keys: tuple[Key, ...], least: Resources, key: Key) -> None:
        """It is the first that waits for a limit of that key."""
        self.first.add(key)
        self.reserved(number, job, keys, least, self._now_us)

    def reserved(self, number: int, job: Job, keys: tuple[Key, ...], has: Resources, at_us: int) -> None:
        """It does not start before that."""
        self._asked.append((number, job, keys, has, at_us))

    # -- who may start beside them -----------------------------------------------------------

    def total(self, key: Key, measure: str) -> float:
        """What is set aside of a limit for all together, whenever they start."""
        return sum(
            [at_once(has, measure) for _, _, keys, has, _ in self._asked if key in keys]
            + [at_once(one.has, measure) for one in self._portions if key in one.keys]
        )

    def opens_us(self, job: Job, keys: tuple[Key, ...], least: Resources) -> int:
        """From when on the limits are expected to let a job start, beside those for which some is set aside
        so far."""
        self._reckon()
        at_us = self._earliest_us(job, keys, least, self._now_us)
        return UNKNOWN_US if at_us is None else at_us

    def known(self, job: Job, keys: tuple[Key, ...], least: Resources) -> Short | None:
        """What `against` found for its like, or finds if it has begun to reckon."""
        if self._before is None:
            return None
        until_us = self._until_us(job, None)
        refused = self._refused.get((keys, least))
        if refused is not None and refused[0] <= until_us:
            return refused[1]
        return self._ask(keys, least, until_us)

    def against(self, job: Job, keys: tuple[Key, ...], has: Resources) -> Short | None:
        """What a job that starts now would have too little of; None: it delays nobody."""
        return self._ask(keys, has, self._until_us(job, None))

    def _ask(self, keys: tuple[Key, ...], has: Resources, until_us: int) -> Short | None:
        self._reckon()
        found = self._short(keys, has, self._now_us, until_us)
        if found is not None:
            self._refused[keys, has] = until_us, found
        return found

    def placed(self, job: Job, keys: tuple[Key, ...], has: Resources) -> None:
        """It runs by this pass."""
        end_us = min(self._until_us(job, None), UNKNOWN_US)
        for key in keys:
            self._placed.setdefault(key, []).append((end_us, has))
            for measure in self._measures(key):
                if (use := self._uses.get((key, measure))) is not None:
                    insort(use.stays, (end_us, at_once(has, measure)))

    # -- reckoning ---------------------------------------------------------------------------

    def _measures(self, key: Key) -> Iterator[str]:
        return (measure for measure in self._tally.limits[key] if measure in MEASURES)

    def _reckon(self) -> None:
        """When those start whose portions were asked for, in order, each beside those before it."""
        for number, job, keys, has, after_us in self._asked:
            at_us = self._earliest_us(job, keys, has, after_us)
            if at_us is not None:
                until_us = self._until_us(job, at_us)
                self._portions.append(Portion(number, keys, has, at_us, until_us))
        self._asked.clear()

    def _earliest_us(self, job: Job, keys: tuple[Key, ...], has: Resources, after_us: int) -> int | None:
        """From when on there is enough of all limits until its end; None: never."""
        for key in keys:
            for measure in self._measures(key):
                room = self._tally.limits[key][measure] - at_once(has, measure)
                free_us = self._use(key, measure).leaves_us(room)
                if free_us is None:
                    return None
                after_us = max(after_us, free_us)
        mine = set(keys)
        times = {after_us}
        for one in self._portions:
            if not mine.isdisjoint(one.keys):
                times.add(min(one.until_us, UNKNOWN_US))
        if len(times) > 1:  # where only portions stand against it, also an end of what runs may help
            times.update(end_us for key in keys for end_us, _ in self._runs(key))
        for at_us in sorted(at_us for at_us in times if at_us >= after_us):
            if self._short(keys, has, at_us, self._until_us(job, at_us)) is None:
                return at_us
        return None

    def _short(self, keys: tuple[Key, ...], has: Resources, start_us: int, until_us: int) -> Short | None:
        """Is there too little for this and all others together when a portion begins, or beside one at the
        start?"""
        for one in self._portions:
            if one.until_us <= start_us or until_us <= one.at_us:
                continue
            at_us = max(one.at_us, start_us)
            for key in (key for key in keys if key in one.keys):
                for measure in self._measures(key):
                    in_use = self._use(key, measure).at(at_us) + self._set_aside(key, measure, at_us)
                    if in_use + at_once(has, measure) > self._tally.limits[key][measure]:
                        return Short(key, measure, one)
        return None

    def _set_aside(self, key: Key, measure: str, at_us: int) -> float:
        there = (one for one in self._portions if one.at_us <= at_us < one.until_us and key in one.keys)
        return sum(at_once(one.has, measure) for one in there)

    def _use(self, key: Key, measure: str) -> Use:
        found = self._uses.get((key, measure))
        if found is None:
            stays = sorted((end_us, at_once(has, measure)) for end_us, has in self._runs(key))
            found = self._uses[key, measure] = Use(stays)
        return found

    def _runs(self, key: Key) -> list[tuple[int, Resources]]:
        """What has how much of it until when; of a slice it is known by its first element."""
        if self._before is None:
            running, jobs = self._running(), self._jobs
            ends: dict[int, int] = {}
            for number, end_us in running.ends():
                name = jobs[number].slice_of or number
                ends[name] = max(end_us, ends.get(name, end_us))
            self._before = {}
            for number, (ruled, has) in self._tally.holds.items():
                for one in ruled.keys:
                    self._before.setdefault(one, []).append((ends.get(number, UNKNOWN_US), has))
        return self._before.get(key, []) + self._placed.get(key, [])
