"""What is known not to fit, from pass to pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rm.core.jobs.free import may_take
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.demand import Demand
from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.scheduling.limits.limiting import Limited
from rm.core.scheduling.patience import until_us
from rm.core.scheduling.rest import Firsts, Rest
from rm.core.sharing.tally import Ruled

Key = Demand | tuple[str, Demand]
Like = tuple[int, int, int | None, int | None]


@dataclass(slots=True)
class Blocked:
    """Demands of jobs that did not fit and the jobs that wait for it, so that a queue of 10,000
    equal jobs costs one look.

    Valid until something that may fit comes free: the owner calls `release` or `clear` then. Jobs
    that only the plan of the last pass stood against have a key of their own: of equal jobs
    it lets pass those that end in time. Each pass goes on with it, so before it `retry` is called; and
    at `retry_us` at the latest, since by then what it was reckoned from has come to pass or not.

    A pass that may refuse few comes to all in several turns. What it has refused by such keys of their own
    stays refused until then, or each turn would begin with these again. `again`: they are to be tried once
    more after that, as something has come free meanwhile.
    """

    reasons: dict[Key, Reason] = field(default_factory=dict)
    waiting: dict[Key, dict[int, None]] = field(default_factory=dict)  # insertion-ordered sets
    retry_us: int | None = None
    kept: dict[int, Demand] = field(default_factory=dict)  # of jobs that reservations of hosts keep from some
    met: set[Key] = field(default_factory=set)  # refused since a pass last came to all that it was to try
    # of these the jobs that are refused by their own keys
    alone: dict[int, Key] = field(default_factory=dict)
    # the same by limits, of the like of a job: with what tells which these are, so that both live
    limited: dict[Like, tuple[Demand, Ruled, Limited]] = field(default_factory=dict)
    again: bool = False
    # of a copy: the reasons by the identity of their keys, most of which are interned, and long to hash
    same: dict[int, Reason] = field(default_factory=dict)
    hopeless: set[Demand] = field(default_factory=set)  # these have no reservation either, until then
    rest: Rest = field(default_factory=Rest)  # of those that were let go, what is not yet to be tried

    def refuse(self, key: Key, reason: Reason, jobs: dict[int, None]) -> bool:
        """Note it, and say whether it is met for the first time. What is tried again in each pass, as hosts
        come free, must not keep a pass of few refusals from those behind it."""
        self.reasons[key], self.waiting[key] = reason, jobs
        if key in self.met:
            return False
        self.met.add(key)
        return True

    def refuse_alone(self, key: Key, reason: Reason, job: Job) -> bool:
        """The same of a job that is refused by a key of its own (`apart`)."""
        self.alone[job.id] = key
        jobs = self.waiting.setdefault(key, {})
        jobs[job.id] = None
        return self.refuse(key, reason, jobs)

    def refused_alone(self, job: Job) -> Reason | None:
        """Why, if it was refused so since a pass last came to all."""
        return self.reasons.get(self.alone[job.id]) if job.id in self.alone else None

    def refuse_over(self, job: Job, kind: Demand, ruled: Ruled, limited: Limited) -> bool:
        """A limit refuses it the hosts that it would have, and all its like until a pass has come to all. Say
        whether it is the first of them."""
        like = _like(job, kind, ruled)
        first = like not in self.limited
        self.limited[like] = kind, ruled, limited
        return first

    def over(self, job: Job, kind: Demand, ruled: Ruled) -> Limited | None:
        """The limit that refuses it so."""
        known = self.limited.get(_like(job, kind, ruled)) if self.limited else None
        return known[2] if known is not None else None

    @property
    def midway(self) -> bool:
        """Is there what stays refused until a pass has come to all?"""
        return bool(self.alone or self.limited)

    def came_to_all(self) -> bool:
        """The pass did; is what stayed refused until then to be tried again at once?"""
        again, self.again = self.again and self.midway, False
        self.limited.clear()
        self.met.clear()
        self.alone.clear()
        self.hopeless.clear()
        return again

    def reason_of(self, job: Job) -> Reason | None:
        kind = self.kept.get(job.id, job.demand)
        reason = self.same.get(id(kind)) or self.reasons.get(kind)
        if reason is not None:
            return reason
        for key in (behind(job), patient(job)) if job.spec.expected_us is not None else (behind(job),):
            if job.id in self.waiting.get(key, ()):
                return self.reasons[key]
        return None

    def note(self, job: Job, kind: Demand) -> None:
        """By what a job is refused now, where reservations of hosts may keep it from some."""
        if kind is job.demand or kind == job.demand:
            self.kept.pop(job.id, None)
        else:
            self.kept[job.id] = kind

    def copy(self) -> Blocked:
        """To ask for reasons in another thread."""
        waiting = {key: dict(jobs) for key, jobs in self.waiting.items()}
        reasons = dict(self.reasons)
        same = {id(key): reason for key, reason in reasons.items()}
        return Blocked(reasons, waiting, kept=dict(self.kept), same=same)

    def clear_but_rest(self, tried: Collection[int], state: ClusterState, firsts: Firsts | None) -> set[int]:
        """Anything may fit now: forget all refusals. The jobs that are behind the first of their kind."""
        self.rest.next(tried, state, firsts)
        for key, jobs in self.waiting.items():
            if key in self.reasons:
                self.rest.first(key, [j for j in jobs if j in state.pending], state, firsts)
        self._clear()
        return self.rest.all()

    def clear(self) -> None:
        """Forget all refusals, but those that stay until a pass has come to all."""
        self._clear()
        self.rest.clear()

    def _clear(self) -> None:
        kept = {key: self.reasons[key] for key in set(self.alone.values()) if key in self.reasons}
        self.again = self.again or self.midway
        self.reasons = kept
        self.waiting = {key: self.waiting[key] for key in kept}
        self.kept.clear()
        self.hopeless.clear()
        self.retry_us = None

    def _leave(self, jobs: Collection[int]) -> None:
        left = set(jobs)
        self.rest.leave(left)
        for job in left:
            self.kept.pop(job, None)
            self.alone.pop(job, None)
        for group in self.waiting.values():
            for job in group.keys() & left:
                del group[job]
        for key in [key for key, group in self.waiting.items() if not group]:
            del self.reasons[key], self.waiting[key]

    def again_now(
        self, tried: Collection[int], freed: Collection[str], state: ClusterState, firsts: Firsts | None
    ) -> list[int]:
        """Those to try beside the `tried`, as these hosts are freer, and as others of their kind have had
        their turn."""
        more = self.rest.next(tried, state, firsts) if self.rest else []
        return more + self.release(freed, state, firsts) if freed else more

    def release(self, freed: Iterable[str], state: ClusterState, firsts: Firsts | None = None) -> list[int]:
        """Forget the refusals that these hosts' being freer may have ended: the jobs to try again, of those
        that ask for the same the first.

        A demand that lacked resources lacks them still unless one of the hosts takes a task of
        it now; any other refusal may depend on all that runs there.
        """
        hosts = [state.hosts[h] for h in freed if h in state.hosts]
        again: list[int] = []
        alone = set(self.alone.values())
        self.again = self.again or self.midway
        for key, reason in list(self.reasons.items()):
            if key in alone:
                continue
            jobs = [j for j in self.waiting[key] if j in state.pending]
            if jobs and reason.code is ReasonCode.RESOURCES:
                spec = state.jobs[jobs[0]].spec
                if not any(may_take(host, state.free[host.name], spec) for host in hosts):
                    continue
            del self.reasons[key], self.waiting[key]
            again += self.rest.first(key, jobs, state, firsts)
        return again

    def overdue(self, jobs: Collection[int], changed: Collection[int]) -> None:
        """Forget the refusals that were to be looked at again by now, if these jobs were; and those of jobs
        that have `changed`, which ask for something else now."""
        if changed:
            self._leave(changed)
        if not jobs:  # as in most turns
            return
        for key in [key for key, reason in self.reasons.items() if until_us(reason) is not None]:
            if not self.waiting[key].keys().isdisjoint(jobs):
                del self.reasons[key], self.waiting[key]

    def again_us(self) -> dict[int, int]:
        """When jobs are to be looked at again, even if nothing has come free."""
        due = ((self.waiting[key], until_us(reason)) for key, reason in self.reasons.items())
        return {job: at_us for jobs, at_us in due if at_us is not None for job in jobs}

    def retry(self, state: ClusterState) -> list[int]:
        """Forget what only the reservation stood against: the jobs to try again."""
        again: list[int] = []
        alone = set(self.alone.values())
        behind_plan = (key for key, reason in self.reasons.items() if reason.code is ReasonCode.PRIORITY)
        for key in [key for key in behind_plan if key not in alone]:
            again += [j for j in self.waiting[key] if j in state.pending]
            del self.reasons[key], self.waiting[key]
        return again


def _like(job: Job, kind: Demand, ruled: Ruled) -> Like:
    return id(kind), id(ruled), job.spec.time_limit_us, job.spec.expected_us


def behind(job: Job) -> Key:
    """What jobs have in common that fit but would outlast the start of the reserved job."""
    return ("behind", job.demand)


def patient(job: Job) -> Key:
    """What jobs have in common that fit but wait for a place where they meet nobody: for as long as they run
    that is worth it, or not."""
    return (f"patient for {job.spec.expected_us}", job.demand)


def apart(job: Job, reason: Reason) -> Key | None:
    """The key of a refusal that does not hold for all jobs with the demand; None: it does."""
    if reason.code is ReasonCode.PRIORITY:
        return behind(job)
    return patient(job) if until_us(reason) is not None else None


def partly(job: Job) -> Key:
    """What jobs have in common that may run in several partitions, but only in these of them now."""
    return ("partly", job.demand)
