"""Why pending jobs wait by the last passes, and in which partition others run: no part of their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rm.core.jobs.array_state import shown
from rm.core.model.asked.demand import Demand
from rm.core.model.described import partition_of
from rm.core.model.host import Host
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.model.replacing import replace
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.cycle import Cycle


@dataclass(frozen=True, slots=True)
class Reasons:
    """Those of some jobs, for another thread than the leader's. `partitions`: of the jobs that asked for
    several and have hosts."""

    of_jobs: Mapping[int, Reason]
    of_shapes: Blocked
    partitions: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cycle: Cycle, few: Sequence[Job] | None = None) -> Reasons:
        """Of all jobs; or of a `few`, which takes less copying."""
        if few is None:
            return cls(dict(cycle.state.reasons), cycle.blocked.copy())
        found = ((job.id, cycle.reason_of(job)) for job in few if job.state is JobState.PENDING)
        return cls({job_id: reason for job_id, reason in found if reason is not None}, Blocked())

    @classmethod
    def of_listed(cls, cycle: Cycle, listed: Sequence[Job], few: Sequence[Job] | None) -> Reasons:
        """As `of`, and with the partitions of those that a list shows."""
        return replace(cls.of(cycle, few), partitions=_partitions(listed, cycle.state.hosts))

    def of_job(self, job: Job) -> Reason | None:
        """The newest reason, where the job waits; else the reason in its record."""
        if job.state is not JobState.PENDING:
            return _kept(job)
        return self.of_jobs.get(job.id) or self.of_shapes.reason_of(job) or _kept(job)

    def codes(self) -> Callable[[Job, Demand], ReasonCode | None]:
        """Of a job that waits, and its demand, the code of what `of_job` says: of ten thousand in a third of
        the time."""
        of_jobs, kept, same = self.of_jobs.get, self.of_shapes.kept.get, self.of_shapes.same.get

        def code_of(job: Job, demand: Demand) -> ReasonCode | None:
            number = job.id
            reason = of_jobs(number) or same(id(kept(number, demand))) or self.of_job(job)
            return None if reason is None else reason.code

        return code_of

    def shown(self, job: Job) -> Job:
        """The job with its newest reason."""
        reason = self.of_job(job)
        return job if reason is job.reason else replace(job, reason=reason)


def _partitions(jobs: Iterable[Job], hosts: Mapping[str, Host]) -> dict[int, str]:
    placed = (job for job in jobs if job.tasks and "," in job.spec.partition)
    return {job.id: partition for job in placed if (partition := partition_of(job, hosts))}


def with_reason(cycle: Cycle, job: Job, now_us: int) -> Job:
    """A pending job shows the engine's newest reason, and what it has waited until now: neither is part of
    its record."""
    if job.state is not JobState.PENDING:
        reason = _kept(job)
        return job if reason is job.reason else replace(job, reason=reason)
    reason = cycle.reason_of(job) or _kept(job)
    return replace(job, reason=reason, waited=cycle.state.waits.of(job, now_us))


def _kept(job: Job) -> Reason | None:
    """By its record. An array's says why elements were ended, and nothing of those that wait."""
    return None if job.array is not None and shown(job) is JobState.PENDING else job.reason


NO_REASONS = Reasons({}, Blocked())
