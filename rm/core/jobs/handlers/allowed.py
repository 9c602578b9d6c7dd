"""The time that an attempt has: less than its time limit where a deadline or a reservation ends before."""

from __future__ import annotations

from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job

LEAST_US = 1_000_000


def allowed_us(state: ClusterState, job: Job, now_us: int) -> int | None:
    """Until the job's deadline, and until the end of its reservation's window; None where its time limit is
    not longer than that."""
    spec, limit_us = job.spec, job.spec.time_limit_us
    reserved = state.reservations.get(spec.reservation)
    ends = (spec.deadline_us, reserved.open_until_us(now_us) if reserved is not None else None)
    last_us = min((end_us for end_us in ends if end_us is not None), default=None)
    if last_us is None:
        return None
    left_us = max(LEAST_US, last_us - now_us)
    return left_us if limit_us is None or left_us < limit_us else None
