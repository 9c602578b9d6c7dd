"""Which limit keeps a job from being placed, before placement is asked: of accounts, users, QOS and
partitions.

What runs is kept by `rm.core.sharing.tally`; a pass adds what it places. Limits of GPU minutes count what
runs until its time limits, so that no order of events can pass them. Source of the codes: Slurm's
documentation, "Job Reason Codes".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from rm.core.jobs.state import ClusterState
from rm.core.model.host import Host
from rm.core.model.job import Job, Placement
from rm.core.model.progress import attained_us
from rm.core.model.reasons import USED_BY, Reason
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Snapshot
from rm.core.scheduling.gates import ran_in, within
from rm.core.scheduling.limits.aside import MEASURES, Aside, Short
from rm.core.scheduling.limits.in_use import Claim
from rm.core.scheduling.limits.words import NOUNS, code_of, code_of_job
from rm.core.scheduling.reservation import said_start
from rm.core.scheduling.running import UNKNOWN_US, Running
from rm.core.sharing.limits import OF_A_JOB, SUBMITTED, USED
from rm.core.sharing.resources import NOTHING, Resources, at_once, least_of, resources_of
from rm.core.sharing.shares import Shares
from rm.core.sharing.tally import BY_TIME, Key, Ruled

MINUTE_US = 60_000_000
NO_LIMIT_US = 365 * 86_400 * 1_000_000  # of a job that runs without a time limit
WHO_MAX = 4
RETRY_US = 30_000_000  # a limit that time lifts is looked at again so much later
FOREVER = float("inf")
Room = tuple[Key, str, int, float]  # the limit, its value, and what is in use
Asked = tuple[int, Resources, int | None]  # which limits, for what, and its time limit if that counts


class Limited(NamedTuple):
    """`key` and `measure`: the limit; the job is looked at again when less is in use under it. `never`: it
    could not run even if nothing else were in use. `also`: where a job may run in several partitions, the
    keys of the limits that keep it from the others."""

    key: Key
    measure: str
    reason: Reason
    never: bool
    also: tuple[Key, ...] = ()


class Limiter:
    """Of the jobs of one pass, or one question."""

    def __init__(self, shares: Shares, jobs: Mapping[int, Job], hosts: Mapping[str, Host]) -> None:
        self._shares, self._jobs, self._hosts = shares, jobs, hosts
        self._tally = shares.tally
        self._more: dict[Key, Resources] = {}  # by this pass
        self._minutes: dict[tuple[Key, str], float] = {}
        self._refused: dict[Asked, Limited] = {}
        # until the next job is placed: whom no limit refuses, and what is in use under limits
        self._fits: set[Asked] = set()
        self._rooms: dict[int, list[Room]] = {}  # by the identity of what rules a job
        # by what is set aside for others, and until when they would have stayed
        self._kept: dict[Asked, tuple[int, Limited]] = {}
        self._aside: Aside | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> Limiter:
        shares = snapshot.shares
        return cls(shares if isinstance(shares, Shares) else Shares(), snapshot.jobs, snapshot.hosts)

    def ruled(self, job: Job) -> Ruled:
        return self._tally.ruled(job)

    def open(self, job: Job) -> tuple[Job, Limited | None]:
        """(the job with those of its partitions in which no limit stands against it, the first limit that
        does in another one). Where limits stand against it in all, it has all that it named."""
        if not self._tally.by_partition or "," not in job.spec.partition:
            return job, self.against(job)
        free, first = list[str](), None
        for name in job.spec.partitions:
            found = self.against(within(job, name))
            if found is None:
                free.append(name)
            else:
                first = found if first is None else first._replace(also=(*first.also, found.key))
        return within(job, ",".join(free)) if free and first is not None else job, first

    def against(self, job: Job, placement: Placement | None = None) -> Limited | None:
        """The first limit that keeps the job from being placed now, or so; None: none does."""
        if not self._tally.rules:
            return None
        ruled = self.ruled(job)
        if not ruled.keys and not ruled.job:
            return None
        need = least_of(job.spec) if placement is None else self._has(job, placement)
        asked = id(ruled), need, job.spec.time_limit_us if ruled.by_length else None
        found = self._refused.get(asked)
        if found is None and asked not in self._fits:
            found = self._find(job, ruled, need)
            if found is not None:
                self._refused[asked] = found  # as its like: what is in use grows in a pass
            else:
                self._fits.add(asked)
        if found is None and self._aside is not None and ruled.keys:
            return self._beside(self._aside, job, ruled, need, asked, placement is not None)
        return found

    def _beside(
        self, aside: Aside, job: Job, ruled: Ruled, need: Resources, asked: Asked, certain: bool
    ) -> Limited | None:
        """Is enough of a limit left beside what is set aside? Unless it is to be `certain`, that is not asked
        before it is known what runs, since most jobs have no room on hosts."""
        refused = self._kept.get(asked)
        if refused is not None and refused[0] <= aside.until_us(job, None):
            return refused[1]
        claim = self._claim(job, ruled, need)
        if self._roomy(aside, claim) or not (certain or aside.reckons):
            return None
        short = aside.against(job, claim)
        if short is None:
            return None
        found = self._kept_from(job, need, short)
        self._kept[asked] = aside.until_us(job, None), found
        return found

    # -- for whom some is set aside ----------------------------------------------------------

    def set_aside(
        self, now_us: int, running: Callable[[], Running], until_us: Callable[[Job, int | None], int]
    ) -> None:
        """Begin to set aside, where anything is limited: see `Aside`."""
        if self._tally.rules:
            self._aside = Aside(self._shares, self._jobs, now_us, running, until_us, self._claim)

    def waits(self, number: int, job: Job, limited: Limited) -> tuple[Key, ...]:
        """Under which keys some is set aside for it, since it is the first that waits for this limit."""
        aside = self._aside
        if aside is None or limited.key in aside.first or limited.never:
            return ()
        one = self._first(job)
        claim = self._claim(one, self.ruled(one), least_of(one.spec))
        if limited.key not in claim.keys:
            return ()
        aside.waits(number, one, claim, limited.key)
        return claim.keys

    def opens_us(self, job: Job) -> int:
        """From when on limits are expected to let it start, beside those for which some is set aside."""
        if self._aside is None:
            return 0
        one = self._first(job)
        claim = self._claim(one, self.ruled(one), least_of(one.spec))
        return 0 if self._roomy(self._aside, claim) else self._aside.opens_us(one, claim)

    def _first(self, job: Job) -> Job:
        """Of several partitions it is looked at in the first."""
        asked = job.spec.partition
        return within(job, job.spec.partitions[0]) if self._tally.by_partition and "," in asked else job

    def _claim(self, job: Job, ruled: Ruled, has: Resources) -> Claim:
        """What it has from now on, or would."""
        if not ruled.by_time:
            return Claim(ruled.keys, has)
        limit_us = 0 if (left_us := self._left_us(job)) is None else left_us
        return Claim(ruled.keys, has, self._rate(job, has, USED), limit_us)

    def _roomy(self, aside: Aside, claim: Claim) -> bool:
        """Is there enough of all limits even when all start at once for which some is set aside?"""
        for key in claim.keys:
            for measure, limit in self._tally.limits[key].items():
                if measure in MEASURES:
                    in_use = self._in_use(key, measure) + aside.total(key, measure)
                    if in_use + claim.at_start(measure) > limit:
                        return False
        return True

    def reserved(self, number: int, job: Job, placement: Placement, at_us: int) -> None:
        """It has a reservation for that time."""
        if self._aside is None:
            return
        one = within(job, ran_in(job, placement, self._hosts)) if self._tally.by_partition else job
        if (ruled := self.ruled(one)).keys:
            claim = self._claim(one, ruled, self._has(one, placement))
            self._aside.reserved(number, one, claim, at_us)

    def _kept_from(self, job: Job, need: Resources, short: Short) -> Limited:
        key, measure, portion = short
        limit, in_use = self._tally.limits[key][measure], self._in_use(key, measure)
        amount, noun = self._amount(job, need, measure), NOUNS[measure]
        said = (
            f"{key} has {_number(in_use)} of at most {limit} {noun}, and needs {_number(amount)} more; "
            f"the rest is set aside for job {portion.number}, which is expected to start "
            f"{said_start(portion.at_us)}: it would not have ended by then"
        )
        numbers = [("limit", limit), ("in_use", round(in_use)), ("needed", round(amount))]
        numbers.append(("reserved_job", portion.number))
        if portion.at_us < UNKNOWN_US:
            numbers.append(("reserved_start_us", portion.at_us))
        return Limited(key, measure, Reason(code_of(key, measure), said, tuple(numbers)), False)

    def never(self, job: Job) -> Limited | None:
        """The first limit that keeps the job waiting even if nothing else is in use."""
        if not self._tally.rules:
            return None
        several = self._tally.by_partition and "," in job.spec.partition
        found = None
        for one in (within(job, name) for name in job.spec.partitions) if several else (job,):
            found = self._find(one, self.ruled(one), least_of(one.spec), idle=True)
            if found is None or not found.never:
                return None
        return found

    def place(self, job: Job, placement: Placement) -> None:
        """This pass places it."""
        if not self._tally.rules or not (ruled := self.ruled(job)).keys:
            return
        need = self._has(job, placement)
        self._fits.clear()
        self._rooms.clear()
        if self._aside is not None:
            self._aside.placed(job, self._claim(job, ruled, need))
        for key in ruled.keys:
            self._more[key] = self._more.get(key, NOTHING).plus(need)
            for measure in BY_TIME & self._tally.limits[key].keys():
                minutes = self._minutes_in_use(key, measure)
                self._minutes[key, measure] = minutes + self._minutes_of(job, need, measure)

    def whose(self, limited: Limited) -> str:
        """Who uses it up: `alice 48, bob 16`; empty where nobody else does."""
        used: Counter[str] = Counter()
        for number, (ruled, has) in self._tally.holds.items():
            if limited.key in ruled.keys and (job := self._jobs.get(number)) is not None:
                used[job.spec.user] += round(self._amount(job, has, limited.measure))
        who = [f"{user} {count}" for user, count in used.most_common(WHO_MAX) if count]
        return ", ".join(who) + (", …" if len(used) > WHO_MAX else "")

    def _has(self, job: Job, placement: Placement) -> Resources:
        return resources_of(job.spec, placement.tasks, self._hosts)

    def _find(self, job: Job, ruled: Ruled, need: Resources, idle: bool = False) -> Limited | None:
        for measure in OF_A_JOB:
            if measure in ruled.job and (found := self._of_job(job, need, measure, *ruled.job[measure])):
                return found
        amounts: dict[str, float] = {}  # the same under all keys
        for key, measure, limit, in_use in self._rooms_of(ruled):
            amount = amounts.get(measure)
            if amount is None:
                amount = amounts[measure] = self._amount(job, need, measure)
            if (0.0 if idle else in_use) + amount > limit:
                return self._over(key, measure, limit, 0.0 if idle else in_use, amount)
        return None

    def _rooms_of(self, ruled: Ruled) -> list[Room]:
        """Of its limits of what is in use; of submitted jobs is asked at the submission."""
        found = self._rooms.get(id(ruled))
        if found is None:
            found = self._rooms[id(ruled)] = [
                (key, measure, limit, self._in_use(key, measure))
                for key in ruled.keys
                for measure, limit in self._tally.limits[key].items()
                if measure != SUBMITTED
            ]
        return found

    def _of_job(self, job: Job, need: Resources, measure: str, limit: int, key: Key) -> Limited | None:
        if measure == "elements":
            return None  # asked at the submission
        amount = self._amount(job, need, measure)
        if amount <= limit:
            return None
        noun = NOUNS[measure]
        asks = (
            f"asks for {_number(amount)} {noun}" if amount != FOREVER else f"has no time limit for its {noun}"
        )
        said = f"{asks}, and a job of {key} has at most {limit}"
        return Limited(key, measure, Reason(code_of_job(key, measure), said, (("limit", limit),)), True)

    def _over(self, key: Key, measure: str, limit: int, in_use: float, amount: float) -> Limited:
        """It needs that much, and there is too little left."""
        noun = NOUNS[measure]
        numbers = [("limit", limit), ("in_use", round(in_use))]
        if amount == FOREVER:
            said = f"has no time limit, and {key} has at most {limit} {noun}: give it one with --time"
        else:
            said = f"{key} has {_number(in_use)} of at most {limit} {noun}, and needs {_number(amount)} more"
            numbers.append(("needed", round(amount)))
        return Limited(key, measure, Reason(code_of(key, measure), said, tuple(numbers)), amount > limit)

    def _amount(self, job: Job, has: Resources, measure: str) -> float:
        """Of a job that runs, or would from now on."""
        match measure:
            case "running":
                return 1
            case "minutes":
                return FOREVER if job.spec.time_limit_us is None else job.spec.time_limit_us / MINUTE_US
            case "gpu_minutes_running" | "billing_minutes":
                return self._minutes_of(job, has, measure)
        return at_once(has, measure)

    def _minutes_of(self, job: Job, has: Resources, measure: str) -> float:
        rate = self._rate(job, has, measure)
        if not rate:
            return 0.0
        left_us = self._left_us(job)
        return FOREVER if left_us is None else rate * left_us / MINUTE_US

    def _rate(self, job: Job, has: Resources, measure: str) -> float:
        """What it counts for in each second."""
        if measure != USED:
            return has.gpus
        found = self._tally.accounts.qos_by_name.get(job.qos)
        return self._shares.rate(has) * (found.usage_factor if found is not None else 1.0)

    def _left_us(self, job: Job) -> int | None:
        """Until its time limit; None: it has none, and does not run."""
        limit_us = job.allowed_us or job.spec.time_limit_us
        if limit_us is None:
            return None if not job.occupies else NO_LIMIT_US
        return max(0, limit_us - attained_us(job, None, self._shares.now_us))

    def _in_use(self, key: Key, measure: str) -> float:
        if measure in BY_TIME:
            return self._minutes_in_use(key, measure)
        before, more = self._tally.in_use.get(key, NOTHING), self._more.get(key, NOTHING)
        return at_once(before, measure) + at_once(more, measure)

    def _minutes_in_use(self, key: Key, measure: str) -> float:
        """Until what runs has reached its time limits; and for all, what was used."""
        known = self._minutes.get((key, measure))
        if known is None:
            jobs = self._jobs
            known = sum(
                self._minutes_of(jobs[number], has, measure)
                for number, (ruled, has) in self._tally.holds.items()
                if key in ruled.keys and number in jobs
            )
            if measure == USED:
                known += self._shares.used_by(key) / 60
            self._minutes[key, measure] = known
        return known


def _number(amount: float) -> str:
    return str(round(amount)) if abs(amount - round(amount)) < 0.05 else f"{amount:.1f}"


def exceeded(job: Job, snapshot: Snapshot, placement: Placement | None = None) -> Reason | None:
    """The limit that keeps a job from being placed now, or so, with who uses it up."""
    limiter = Limiter.of(snapshot)
    if placement is None:
        one, limited = limiter.open(job)
        limited = limited if one is job else None
    else:
        limited = limiter.against(job, placement)
    if limited is None:
        return None
    reason, who = limited.reason, limiter.whose(limited)
    return replace(reason, numbers=(*reason.numbers, (USED_BY, who))) if who else reason


@dataclass(slots=True)
class LimitedJobs:
    """Which pending jobs wait for less to be in use, or set aside, under which key, between the passes."""

    _by_key: dict[Key, dict[int, None]] = field(default_factory=dict)
    _by_time: dict[int, int] = field(default_factory=dict)  # of those that time may help: when to try again
    _again: dict[Key, None] = field(default_factory=dict)  # of these nothing is set aside for a job any more

    def clear(self) -> None:
        self._by_key.clear()
        self._by_time.clear()
        self._again.clear()

    def note(self, limited: Mapping[int, Limited], now_us: int) -> None:
        for number, one in limited.items():
            for key in (one.key, *one.also):
                self._by_key.setdefault(key, {})[number] = None
            if one.measure in BY_TIME and not one.never:
                self._by_time[number] = now_us + RETRY_US

    def released(self, state: ClusterState, now_us: int) -> dict[int, None]:
        """Those that are to be tried now."""
        freed, state.tally.freed = state.tally.freed, {}
        for number in [number for number in state.aside if number not in state.pending]:
            self._again.update(dict.fromkeys(state.aside.pop(number)))
        again, self._again = self._again, {}
        found: dict[int, None] = {}
        for key in freed | again:
            found.update(self._by_key.pop(key, {}))
        if self._by_time:
            found.update(dict.fromkeys(job for job, at_us in self._by_time.items() if at_us <= now_us))
            for job in found:
                self._by_time.pop(job, None)
        return found

    def retry_us(self, pending: Container[int]) -> int | None:
        """When time alone may let one of them run; 0: at once."""
        if self._again:
            return 0
        if not self._by_time:
            return None
        for job in [job for job in self._by_time if job not in pending]:
            del self._by_time[job]
        return min(self._by_time.values(), default=None)

    @staticmethod
    def with_those_ahead(chosen: list[int], state: ClusterState) -> list[int]:
        """Also those for which something is set aside of the limits that the chosen are under."""
        if not chosen or not state.aside:
            return chosen
        rules = {id(one): one for one in (state.tally.ruled(state.jobs[number]) for number in chosen)}
        keys = {key for one in rules.values() for key in one.keys}
        ahead = (number for number, mine in state.aside.items() if not keys.isdisjoint(mine))
        return list(dict.fromkeys([*chosen, *ahead]))

    def set_aside(
        self,
        state: ClusterState,
        tried: AbstractSet[int],
        started: AbstractSet[int],
        aside: dict[int, tuple[Key, ...]],
        planned: Container[int],
    ) -> None:
        """A pass has found for whom something of limits is set aside: they wait for it, or are planned."""
        for number in (*state.aside, *(state.planned if state.tally.rules else ())):
            if number in tried and number not in started and number not in aside and number not in planned:
                self._again.update(dict.fromkeys(state.tally.ruled(state.jobs[number]).keys))
        state.aside = {number: keys for number, keys in state.aside.items() if number not in tried} | aside
