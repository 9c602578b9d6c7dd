"""Fencing by lease: when the tasks of a host that is not heard have certainly ended.

A host ends the tasks of a fenced job when it has not heard the leading daemon for the time of their lease
(`agents/rm_lease.py`). What it counts from is a moment at which the daemon heard it, so its lease is over no
later than that time after the daemon heard it last; the grace between SIGTERM and SIGKILL follows. Only then
is the job given up here, so that it never runs twice (Gray and Cheriton: Leases, SOSP 1989).
"""

from __future__ import annotations

from collections.abc import Iterator

from rm.core.jobs.changes import Rules
from rm.core.jobs.state import ClusterState
from rm.core.model.host import HostState
from rm.core.model.job import Job
from rm.core.model.reasons import Reason, ReasonCode

MARGIN_US = 5_000_000  # in which the kernel ends what was killed
DRIFT = 1_000  # a host's clock may be slower than the daemon's by one part in this many


def ended_after_us(job: Job) -> int:
    """How long after its last sign of life a host certainly runs nothing of the attempt; 0: it has no lease,
    or is a gang that never got its start."""
    if not job.spec.fence_us or not job.go:
        return 0
    whole_us = job.spec.fence_us + job.fence_grace_us
    return whole_us + whole_us // DRIFT + MARGIN_US


def over_at_us(job: Job, host: str, state: ClusterState, rules: Rules) -> int | None:
    """When its tasks on a host that is not heard may be given up; None: the host is heard, the job has no
    lease, or no task of it there that has not ended."""
    since_us = state.silent_since.get(host)
    after_us = ended_after_us(job)
    if since_us is None or not after_us or all(t.ended_us is not None or t.host != host for t in job.tasks):
        return None
    return since_us + max(after_us, rules.down_after_us)


def on_silent_hosts(state: ClusterState, rules: Rules) -> Iterator[tuple[Job, str, int]]:
    """(job, host, when its lease there is over) of all that waits for a lease."""
    for host in state.silent_since:
        for job_id in sorted(state.jobs_on.get(host, ())):
            job = state.jobs[job_id]
            if not job.spec.fence_us:
                continue
            if (at_us := over_at_us(job, host, state, rules)) is not None:
                yield job, host, at_us


def waiting(state: ClusterState, job: Job, rules: Rules, now_us: int) -> Reason | None:
    """Why a job with a host that is DOWN is not given up yet: the lease that is over last."""
    if not job.occupies or not job.spec.fence_us:
        return None
    down = [
        h for h in {t.host for t in job.tasks} if h in state.hosts and state.hosts[h].state is HostState.DOWN
    ]
    ends = [(at_us, host) for host in down if (at_us := over_at_us(job, host, state, rules)) is not None]
    if not ends:
        return None
    at_us, host = max(ends)
    left_s = max(0, -((now_us - at_us) // 1_000_000))
    return Reason(
        ReasonCode.LEASE,
        f"waits until the lease of host {host} has run out ({left_s} s): until then it may run there",
        (("wait_s", left_s),),
    )
