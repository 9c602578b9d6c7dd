"""What is known not to fit, from pass to pass, and which jobs free resources are kept for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rm.core.jobs.state import ClusterState, may_take
from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.scheduling.reservation import Reservation


@dataclass(slots=True)
class Blocked:
    """Shapes of jobs that did not fit and the jobs that wait for it, so that a queue of 10,000
    equal jobs costs one look.

    Valid until something that may fit comes free: the owner calls `release` or `clear` then. Jobs
    that only the `reservation` of the last pass stood against have a key of their own: of equal jobs
    it lets pass those that end in time. Each pass makes it anew, so before it `retry` is called; and
    at `retry_us` at the latest, since by then what it was reckoned from has come to pass or not.
    """

    reasons: dict[object, Reason] = field(default_factory=dict)
    waiting: dict[object, dict[int, None]] = field(default_factory=dict)  # insertion-ordered sets
    reservation: Reservation | None = None
    retry_us: int | None = None

    def reason_of(self, job: Job) -> Reason | None:
        reason = self.reasons.get(shape(job))
        if reason is None and job.id in self.waiting.get(behind(job), ()):
            return self.reasons[behind(job)]
        return reason

    def copy(self) -> Blocked:
        """To ask for reasons in another thread."""
        return Blocked(dict(self.reasons), {key: dict(jobs) for key, jobs in self.waiting.items()})

    def clear(self) -> None:
        self.reasons.clear()
        self.waiting.clear()
        self.reservation = self.retry_us = None

    def release(self, freed: Iterable[str], state: ClusterState) -> list[int]:
        """Forget the refusals that these hosts' being freer may have ended: the jobs to try again.

        A shape that lacked resources lacks them still unless one of the hosts takes a task of
        it now; any other refusal may depend on all that runs there.
        """
        hosts = [state.hosts[h] for h in freed if h in state.hosts]
        again: list[int] = []
        for key, reason in list(self.reasons.items()):
            jobs = [j for j in self.waiting[key] if j in state.pending]
            if jobs and reason.code is ReasonCode.RESOURCES:
                spec = state.jobs[jobs[0]].spec
                if not any(may_take(host, state.free[host.name], spec) for host in hosts):
                    continue
            del self.reasons[key], self.waiting[key]
            again += jobs
        return again

    def retry(self, state: ClusterState) -> list[int]:
        """Forget what only the reservation stood against: the jobs to try again."""
        again: list[int] = []
        for key in [k for k, reason in self.reasons.items() if reason.code is ReasonCode.PRIORITY]:
            again += [j for j in self.waiting[key] if j in state.pending]
            del self.reasons[key], self.waiting[key]
        return again


def shape(job: Job) -> object:
    """What decides whether a job fits: two jobs of equal shape fit or fail together."""
    s = job.spec
    return (
        s.ntasks, s.hosts_min, s.hosts_max, s.tasks_per_host, s.cpus_per_task, s.mem_bytes_per_task,
        s.mem_bytes_per_host, s.mem_all, s.gpus_per_task, s.gpus_per_host, s.gpu_bind, s.ntasks_per_gpu,
        s.gpu_type, s.gpu_mem_bytes, s.distribution, s.partition, s.zone, s.hosts_only, s.hosts_excluded,
        s.exclusive, s.low_comm, s.is_high, job.traffic, job.avoid,
    )  # fmt: skip


def behind(job: Job) -> object:
    """What jobs have in common that fit but would outlast the start of the reserved job."""
    return ("behind", shape(job))
