"""For how long jobs wait, by the code of the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode

NONE = "None"  # no pass has said why: Slurm's word for that
Waited = tuple[tuple[str, int], ...]  # (code, microseconds), in the order in which they came first


def total_us(waited: Waited) -> int:
    return sum(us for _, us in waited)


def with_more(waited: Waited, code: str, us: int) -> Waited:
    if us <= 0:  # the clock may step back
        return waited
    found = dict(waited)
    found[code] = found.get(code, 0) + us
    return tuple(found.items())


def waits_since_us(job: Job) -> int:
    """Since it was submitted, or its last attempt ended."""
    return max(job.submitted_us, (job.earlier[-1].ended_us or 0) if job.earlier else 0)


@dataclass(slots=True)
class Waits:
    """Of pending jobs: why each waits and since when, and what it waited before for other reasons where its
    record does not say that yet. A job that is not known here has waited for what its record says."""

    now: dict[int, tuple[ReasonCode, int]] = field(default_factory=dict)
    before: dict[int, Waited] = field(default_factory=dict)

    def differ(self, jobs: Iterable[int], code: ReasonCode) -> list[int]:
        """Those that waited for another reason, or are not known; of 10,000 in less than a millisecond."""
        now = self.now
        return [job for job in jobs if (met := now.get(job)) is None or met[0] is not code]

    def note(self, jobs: Iterable[Job], code: ReasonCode, now_us: int) -> None:
        """They wait for this from now on; in the time of which nothing is known, they did, too."""
        for job in jobs:
            met = self.now.get(job.id)
            if met is None:
                since_us = job.submitted_us
                if job.earlier or job.waited:
                    since_us = waits_since_us(job) + total_us(job.waited)
                self.now[job.id] = code, since_us if since_us < now_us else now_us
            elif met[0] is not code:
                known = self.before.get(job.id, job.waited)
                self.before[job.id] = with_more(known, met[0].value, now_us - met[1])
                self.now[job.id] = code, now_us

    def clock_stepped(self, by_us: int) -> None:
        """The clock was set: what is under way has taken as long as it has."""
        self.now = {job: (code, since_us + by_us) for job, (code, since_us) in self.now.items()}

    def of(self, job: Job, now_us: int) -> Waited:
        """All that a job has waited; one that waits, up to now."""
        if job.state is not JobState.PENDING:
            return job.waited
        known = self.before.get(job.id, job.waited)
        met = self.now.get(job.id)
        if met is None:
            return with_more(known, NONE, now_us - waits_since_us(job) - total_us(known))
        return with_more(known, met[0].value, now_us - met[1])

    def end(self, job: Job, now_us: int) -> Waited:
        """All that it has waited: it waits no longer."""
        waited = self.of(job, now_us)
        self.now.pop(job.id, None)
        self.before.pop(job.id, None)
        return waited
