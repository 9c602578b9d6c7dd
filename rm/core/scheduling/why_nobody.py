"""Why no running job is preempted for a pending one that may preempt others."""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.model.job import Job
from rm.core.model.progress import attained_us
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.ports import reserves
from rm.core.scheduling.after import NAMED_MAX, After
from rm.core.scheduling.engine import Policies, Tuning, tries_of
from rm.core.scheduling.gates import accounts_of, by_tier
from rm.core.scheduling.limits.limiting import Limiter
from rm.core.scheduling.preemption import AS_IT_IS, Supposed, Victim, may_go, victims_of
from rm.core.scheduling.reservation import said_start
from rm.core.sharing.preempt_terms import may_preempt, terms_of

EXEMPT, ANYHOW = Supposed(exempt=True), Supposed(exempt=True, end=True)


def why_nobody(job: Job, snapshot: Snapshot, policies: Policies, tuning: Tuning) -> Reason | None:
    """Of a job that cannot be placed now, within its limits; None: it preempts nobody in any case, others go
    for it already, or it needs nobody to go."""
    if not may_preempt(accounts_of(snapshot), job) or job.id in snapshot.claims:
        return None
    tries = tries_of(policies, tuning)
    if tries(job, After(snapshot, tries).without()) is not None:
        return None
    asked = _Asked(job, snapshot, policies, tuning)
    limiter = Limiter.of(snapshot)
    if some := asked.victims(limiter=limiter):
        return _reason(asked.behind() or f"{_named(some, snapshot)} may be preempted for it, and is next")
    if asked.victims():
        return _reason("where it would be placed if others were preempted, a limit stands against it")
    if some := asked.victims(EXEMPT):
        return asked.exempt(some)
    if some := asked.victims(ANYHOW):
        return _reason(
            f"{_named(some, snapshot)} would only be suspended for it, and keep memory and GPUs: "
            "nobody is preempted, since it would not fit"
        )
    count = len({number for one in asked.candidates() for number in one.jobs})
    if not count:
        return _reason("none of the running jobs may be preempted for it")
    which = f"{count} running jobs" if count > 1 else "one running job"
    return _reason(f"it would not fit without the {which} that it may preempt, either: nobody is preempted")


class _Asked:
    def __init__(self, job: Job, snapshot: Snapshot, policies: Policies, tuning: Tuning) -> None:
        self._job, self._snapshot, self._policies, self._tuning = job, snapshot, policies, tuning
        self._accounts = accounts_of(snapshot)

    def victims(self, supposed: Supposed = AS_IT_IS, limiter: Limiter | None = None) -> tuple[Victim, ...]:
        found = victims_of(
            self._job, self._snapshot, self._accounts, self._policies, self._tuning, limiter, supposed
        )
        return found[1] if found is not None else ()

    def candidates(self) -> list[Victim]:
        """All that it may ever preempt of those that run, in each of its partitions."""
        return [
            one
            for partition in self._job.spec.partitions or ("",)
            for one in may_go(self._snapshot, self._accounts, self._job.qos, partition, ANYHOW)
        ]

    def exempt(self, some: Sequence[Victim]) -> Reason:
        """These would be enough, but some of them have not run for their exempt time."""
        snapshot, job = self._snapshot, self._job
        until_us = snapshot.now_us
        for number in (number for one in some for number in one.jobs):
            other = snapshot.jobs[number]
            terms = terms_of(self._accounts, job.qos, job.spec.partition, other)
            if terms is not None:
                left_us = terms.exempt_us - attained_us(other, None, snapshot.now_us)
                until_us = max(until_us, snapshot.now_us + left_us)
        said = f"the exempt time of {_named(some, snapshot)} ends {said_start(until_us)}"
        return _reason(f"{said}: nobody is preempted before", (("exempt_until_us", until_us),))

    def behind(self) -> str:
        """Before which job it must not preempt; empty where there is none."""
        job, snapshot, queue = self._job, self._snapshot, self._policies.queue
        if not reserves(queue):
            return ""
        end_us = queue.end_us(job, snapshot)
        others = [snapshot.jobs[one] for one in snapshot.planned if one != job.id and one in snapshot.jobs]
        for one in by_tier(queue.order([*others, job], snapshot), snapshot):
            if one.id == job.id:
                break
            if may_preempt(self._accounts, one) and snapshot.planned[one.id].outlasted_by(end_us):
                return f"it would delay job {one.ref}, which may preempt, too, and comes before it"
        return ""


def _named(some: Sequence[Victim], snapshot: Snapshot) -> str:
    numbers = [number for one in some for number in one.jobs]
    told = ", ".join(snapshot.jobs[number].ref for number in numbers[:NAMED_MAX])
    return f"job{'s' if len(numbers) > 1 else ''} {told}" + (", …" if len(numbers) > NAMED_MAX else "")


def _reason(said: str, numbers: tuple[tuple[str, int], ...] = ()) -> Reason:
    return Reason(ReasonCode.NOBODY_PREEMPTED, said, numbers)
