"""Preemption: which running jobs give way to a pending one whose QOS or partition stands above theirs.

Victims are chosen so that little work is lost (the time since their start, for each of their GPUs), then so
that they are few; and none whose going is not needed. A gang goes as a whole, and so does a slice. The exact
minimum is a knapsack: here two orders of the candidates are tried, by loss and by size, each as far as it has
to be, and then everybody is let off who can be, within a number of questions. A job that resources are
reserved for, and for which nobody can go, is not delayed by one that preempts behind it. Source of the terms:
Slurm's documentation, "Preemption" (`PreemptType=preempt/qos` and `preempt/partition_prio`).

Who is suspended loses nothing, and gives nothing but processors: the other one is placed at once over it.
Where others must go as well, these go first, and what is suspended is chosen when they have gone.

Not to be taken for the `preemptive` transfers of the papers, which are about a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rm.core.jobs.state import ClusterState
from rm.core.model.asked.demand import Demand
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState, Placement
from rm.core.model.planned import Planned
from rm.core.model.progress import attained_us
from rm.core.model.snapshot import Snapshot
from rm.core.ports import reserves
from rm.core.scheduling.after import After, Tries
from rm.core.scheduling.engine import Policies, Tuning, tries_of, waiting
from rm.core.scheduling.gates import Gates, by_tier, ran_in, within
from rm.core.scheduling.limits.limiting import Limiter
from rm.core.scheduling.turns import Turns
from rm.core.sharing.accounts import SUSPEND, Accounts
from rm.core.sharing.preempt_terms import Terms, may_preempt, terms_of

MAY_GO = frozenset({JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED})
AGAIN_US = 1_000_000  # those for whom nobody could go are looked at again so much later
TURN_US = 60_000_000  # and one for whom somebody went, and who does not run yet
TRIED_MAX = 4  # kinds of jobs in one turn of the leader; the next turn begins with those that follow
Kind = tuple[Demand, str, str]  # with the QOS and, where partitions have rules, the account
ASKED_MAX = 128  # questions to the placement policy for one job, beyond which nobody else is let off


@dataclass(frozen=True, slots=True)
class Victim:
    """`jobs` go together: one, or the elements of a slice. `lost_us` is the time since their start, of each
    of their GPUs; nothing of one that `stands` still and goes on later."""

    jobs: tuple[int, ...]
    hosts: tuple[str, ...]
    lost_us: int
    size: tuple[int, int]  # GPUs, processors
    stands: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """`victims` are to go for a pending job; `as_asked`: with the partition that stands above theirs."""

    job: int
    as_asked: Job
    victims: tuple[Victim, ...]

    @property
    def at_once(self) -> bool:
        """May it be placed at once, since all of them only stand still?"""
        return all(one.stands for one in self.victims)


@dataclass(frozen=True, slots=True)
class Supposed:
    """What is otherwise than the terms say, for who asks whether they are in the way: the `exempt` time of
    all is over, and all `end` who would only stand still."""

    exempt: bool = False
    end: bool = False


AS_IT_IS = Supposed()


def may_go(
    snapshot: Snapshot, accounts: Accounts, qos: str, partition: str = "", supposed: Supposed = AS_IT_IS
) -> list[Victim]:
    """Those that a job of this QOS and partition may preempt, the least loss first."""
    up = {name for name, host in snapshot.hosts.items() if host.state is HostState.UP}
    together: dict[tuple[int, int], list[Job]] = {}
    spared, stand = set[tuple[int, int]](), set[tuple[int, int]]()
    known: dict[tuple[str, str], Terms | None] = {}
    for number, placed in snapshot.placed.items():
        job = snapshot.jobs[number]
        if number < 0:
            continue
        standing = job.qos, job.partition or job.spec.partition
        if standing not in known:
            known[standing] = terms_of(accounts, qos, partition, job)
        if (terms := known[standing]) is None:
            continue
        of = (job.slice_of, 0) if job.slice_of else (0, number)
        ran_us = attained_us(job, None, snapshot.now_us)
        suspends = terms.mode == SUSPEND and not supposed.end
        exempt = ran_us < terms.exempt_us and not (job.waits_in_slice or job.yields_to or supposed.exempt)
        if (
            (not _may_stand(job) if suspends else job.state not in MAY_GO)
            or not up.issuperset(placed.placement.hosts)
            or exempt
        ):
            spared.add(of)
        if suspends:
            stand.add(of)
        together.setdefault(of, []).append(job)
    found = [_victim(jobs, snapshot, of in stand) for of, jobs in together.items() if of not in spared]
    return sorted(found, key=lambda one: (one.lost_us, one.jobs))


def choose(
    job: Job, snapshot: Snapshot, candidates: Sequence[Victim], tries: Tries, limiter: Limiter | None = None
) -> tuple[Victim, ...]:
    """Those of the candidates, in the order of their loss, that go so that the job can be placed; none where
    it could not be even then, or where a limit of `limiter` stands against it as it would be placed."""
    within_limits = tries if limiter is None else _within_limits(tries, limiter)
    standing = [number for one in candidates if one.stands for number in one.jobs]
    return _Choice(job, After(snapshot, tries, standing=standing), within_limits).best(candidates)


def _within_limits(tries: Tries, limiter: Limiter) -> Tries:
    """What a job holds may be known only with its hosts: all of theirs, if it is exclusive. A pass asks the
    limits with them, and so who is to go for it is asked with them, too."""

    def allowed(job: Job, then: Snapshot) -> Placement | None:
        placement = tries(job, then)
        if placement is None:
            return None
        several = "," in job.spec.partition
        asked = within(job, ran_in(job, placement, then.hosts)) if several else job
        return placement if limiter.against(asked, placement) is None else None

    return allowed


class _Choice:
    def __init__(self, job: Job, after: After, tries: Tries) -> None:
        self._job, self._after, self._tries = job, after, tries
        self._asked = 0
        self._known: dict[frozenset[int], frozenset[str] | None] = {}

    def best(self, candidates: Sequence[Victim]) -> tuple[Victim, ...]:
        if not candidates or self._hosts(candidates) is None or self._hosts(()) is not None:
            return ()
        largest = sorted(candidates, key=lambda one: (*(-n for n in one.size), one.lost_us, one.jobs))
        found = [self._few(self._first(order)) for order in (candidates, largest)]
        return min(found, key=lambda some: (sum(one.lost_us for one in some), len(some)))

    def _hosts(self, gone: Iterable[Victim]) -> frozenset[str] | None:
        """Where the job could be placed had these gone."""
        some = frozenset(number for one in gone for number in one.jobs)
        if some not in self._known:
            self._asked += 1
            placement = self._tries(self._job, self._after.without(some))
            self._known[some] = None if placement is None else frozenset(placement.hosts)
        return self._known[some]

    def _first(self, order: Sequence[Victim]) -> tuple[Victim, ...]:
        """The shortest begin of the order that is enough, and of it what is in the way."""
        short, enough = 0, len(order)
        while enough - short > 1:
            middle = (short + enough) // 2
            if self._hosts(order[:middle]) is None:
                short = middle
            else:
                enough = middle
        some = tuple(order[:enough])
        where = self._hosts(some) or frozenset()
        there = tuple(one for one in some if not where.isdisjoint(one.hosts))
        return there if len(there) < len(some) and self._hosts(there) is not None else some

    def _few(self, some: tuple[Victim, ...]) -> tuple[Victim, ...]:
        """Without those who need not go, the greatest loss first; many at once as long as that goes."""
        rest, length = tuple(sorted(some, key=lambda one: (-one.lost_us, one.jobs))), len(some)
        while length and len(rest) > 1:
            at = 0
            while at < len(rest) and self._asked < ASKED_MAX:
                fewer = rest[:at] + rest[at + length :]
                if fewer and self._hosts(fewer) is not None:
                    rest = fewer
                else:
                    at += length
            length //= 2
        return rest


@dataclass(slots=True)
class Preemption:
    """Which pending jobs may preempt others, and when they were last looked at, between the steps. The kinds
    for whom nobody can go are passed over until all others have had their turn."""

    _waiting: dict[int, None] | None = None  # None: it is to be found out
    _not_before_us: dict[int, int] = field(default_factory=dict)
    _passed: set[Kind] = field(default_factory=set)
    _accounts: Accounts | None = None
    _next_us: int | None = None

    def clear(self) -> None:
        self._waiting, self._next_us, self._accounts = None, None, None
        self._not_before_us.clear()
        self._passed.clear()

    def due_us(self) -> int | None:
        """When the clock alone may let one of them go on."""
        return self._next_us

    def tried(self, number: int, placed: bool, now_us: int) -> None:
        """A job, or an element of an array, was to be `placed` over those that stand still: the next one may
        be at once; one that was not is still awaited by others, which are about to go."""
        if placed:
            self._not_before_us.pop(number, None)
        else:
            self._not_before_us[number] = now_us + AGAIN_US

    @staticmethod
    def follow(
        state: ClusterState, number: int, policies: Policies, tuning: Tuning, now_us: int
    ) -> Found | None:
        """Who is to stand still for a job for which others have gone, if that is enough now."""
        snapshot = state.snapshot(now_us)
        job, shut = Gates(snapshot).of(state.jobs[number])
        one = next((one for _, one in Turns(snapshot).of([job])), None)
        if shut is not None or one is None or waiting(job, snapshot) is not None:
            return None
        limiter = Limiter.of(snapshot)
        asked, limited = limiter.open(one)
        if limited is not None and asked is one:
            return None
        found = victims_of(asked, snapshot, state.accounts, policies, tuning, limiter)
        follows = None if found is None else Found(number, *found)
        return follows if follows is not None and follows.at_once else None

    def look(
        self,
        state: ClusterState,
        fresh: Iterable[int],
        policies: Policies,
        tuning: Tuning,
        now_us: int,
    ) -> Found | None:
        """The first pending job in the queue policy's order that can be helped, and who is to go for it;
        `fresh` are those that joined the queue."""
        found = self._of_those(state, fresh)
        if not found:
            self._next_us = None
            self._passed.clear()
            return None
        new = any(number in found for number in fresh)
        if not new and self._next_us is not None and now_us < self._next_us:
            return None
        self._next_us = now_us + AGAIN_US
        snapshot = state.snapshot(now_us)
        jobs = [state.jobs[number] for number in found if self._not_before_us.get(number, 0) <= now_us]
        ready = [job for job in jobs if job.id not in state.claims and waiting(job, snapshot) is None]
        limiter, seen, tried = Limiter.of(snapshot), set[Kind](), 0
        standing: list[Planned] = []
        gates = Gates(snapshot)
        for job, one in Turns(snapshot).of(by_tier(policies.queue.order(ready, snapshot), snapshot)):
            kind = job.demand, job.qos, job.account if gates else ""
            if kind in seen:
                continue
            one, shut = gates.of(one)
            asked, limited = limiter.open(one)
            if shut is not None or (limited is not None and asked is one):
                continue
            one = asked
            if _delays(one, standing, policies, snapshot):
                continue
            seen.add(kind)
            if kind not in self._passed:
                if tried == TRIED_MAX:
                    return None
                tried += 1
                found_for = victims_of(one, snapshot, state.accounts, policies, tuning, limiter)
                if found_for is not None:
                    self._not_before_us[job.id] = now_us + TURN_US
                    return Found(job.id, *found_for)
                self._passed.add(kind)
            standing += [state.planned[job.id]] if job.id in state.planned else []
        self._passed.clear()  # all have had their turn
        return None

    def _of_those(self, state: ClusterState, fresh: Iterable[int]) -> dict[int, None]:
        accounts = state.accounts
        if accounts is not self._accounts:
            self._accounts, self._waiting = accounts, None
        if not accounts.preemptors and accounts.preempted_from is None:
            return {}
        known = state.pending if self._waiting is None else {**self._waiting, **dict.fromkeys(fresh)}
        self._waiting = {
            number: None
            for number in known
            if number in state.pending and may_preempt(accounts, state.jobs[number])
        }
        for number in [number for number in self._not_before_us if number not in self._waiting]:
            del self._not_before_us[number]
        return self._waiting


def victims_of(
    job: Job,
    snapshot: Snapshot,
    accounts: Accounts,
    policies: Policies,
    tuning: Tuning,
    limiter: Limiter | None = None,
    supposed: Supposed = AS_IT_IS,
) -> tuple[Job, tuple[Victim, ...]] | None:
    """Who is to go so that the job can be placed; None where that does not help, or is not needed. Where
    tiers decide, each of its partitions is asked by itself, as far as one is needed."""
    several = accounts.preempted_from is not None and "," in job.spec.partition
    for partition in job.spec.partitions if several else (job.spec.partition,):
        asked = within(job, partition) if several else job
        candidates = may_go(snapshot, accounts, job.qos, partition, supposed)
        if candidates and (some := choose(asked, snapshot, candidates, tries_of(policies, tuning), limiter)):
            return asked, some
    return None


def _may_stand(job: Job) -> bool:
    """Not what its user has suspended: that goes on when the user says."""
    return job.state is JobState.RUNNING or bool(job.yields_to and job.state is JobState.SUSPENDED)


def _delays(job: Job, standing: Sequence[Planned], policies: Policies, snapshot: Snapshot) -> bool:
    if not standing or not reserves(policies.queue):
        return False
    end_us = policies.queue.end_us(job, snapshot)
    return any(one.outlasted_by(end_us) for one in standing)


def _victim(jobs: list[Job], snapshot: Snapshot, stands: bool) -> Victim:
    hosts = dict.fromkeys(host for job in jobs for host in snapshot.placed[job.id].placement.hosts)
    lost_us, gpus, cpus = 0, 0, 0
    for job in jobs:
        placement = snapshot.placed[job.id].placement
        mine = sum(len(placement.gpus_on(host)) for host in placement.hosts)
        lost_us += attained_us(job, None, snapshot.now_us) * max(1, mine)
        gpus, cpus = max(gpus, mine), max(cpus, job.spec.cpus_per_task * len(placement.tasks))
    return Victim(tuple(job.id for job in jobs), tuple(hosts), 0 if stands else lost_us, (gpus, cpus), stands)
