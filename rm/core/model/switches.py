"""--switches: how few racks a job wants its hosts in, and how long it waits for that.

A rack is what hangs on one leaf (`rm.core.model.network.fabric`); a host on no known leaf is one of its own.
"""

from __future__ import annotations

from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot


def insists_until_us(job: Job, snapshot: Snapshot) -> int:
    """Until when the job takes no more racks than it asks for; 0 = it asks for none.

    Its time begins with what last happened to it (its submission, release, requeue or change, the end of the
    jobs that it waited for), or when it may begin. An element that has not run yet begins with its array.
    """
    if not job.spec.switches:
        return 0
    if job.array_job and not job.attempt:
        job = snapshot.jobs.get(job.array_job, job)
    return max(job.touched_us or job.submitted_us, job.begin_us) + job.spec.switches_wait_us


def insists(job: Job, snapshot: Snapshot) -> bool:
    """Does it still wait for few racks?"""
    return insists_until_us(job, snapshot) > snapshot.now_us
