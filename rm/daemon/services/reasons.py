"""Why pending jobs wait, as of the last passes: no part of their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason
from rm.core.scheduling.blocked import Blocked
from rm.core.scheduling.cycle import Cycle


@dataclass(frozen=True, slots=True)
class Reasons:
    """Those of some jobs, for another thread than the leader's."""

    of_jobs: Mapping[int, Reason]
    of_shapes: Blocked

    @classmethod
    def of(cls, cycle: Cycle, few: Sequence[Job] | None = None) -> Reasons:
        """Of all jobs; or of a `few`, which takes less copying."""
        if few is None:
            return cls(dict(cycle.state.reasons), cycle.blocked.copy())
        found = ((job.id, cycle.reason_of(job)) for job in few if job.state is JobState.PENDING)
        return cls({job_id: reason for job_id, reason in found if reason is not None}, Blocked())

    def of_job(self, job: Job) -> Reason | None:
        """The newest, where it waits; else that of its record."""
        if job.state is not JobState.PENDING:
            return job.reason
        return self.of_jobs.get(job.id) or self.of_shapes.reason_of(job) or job.reason

    def shown(self, job: Job) -> Job:
        """The job with its newest reason."""
        reason = self.of_job(job)
        return job if reason is job.reason else replace(job, reason=reason)


def with_reason(cycle: Cycle, job: Job) -> Job:
    """A pending job shows the engine's newest reason, which is not part of its record."""
    reason = cycle.reason_of(job) if job.state is JobState.PENDING else None
    return replace(job, reason=reason) if reason is not None else job


NO_REASONS = Reasons({}, Blocked())
