"""The state of a job array, or of some of its elements together: it follows from what has become of each."""

from __future__ import annotations

from rm.core.model.asked.array import Array
from rm.core.model.job import Job, JobState


def state_of(array: Array) -> JobState:
    """PENDING while elements wait, RUNNING until all have ended; then FAILED if one did not end well."""
    if array.waiting:
        return JobState.PENDING
    if array.unfinished:
        return JobState.RUNNING
    if array.failed:
        return JobState.FAILED
    return JobState.CANCELLED if array.cancelled or array.dropped else JobState.COMPLETED


def shown(job: Job) -> JobState:
    """The state of a job as people see it: an array pends whose elements all wait as jobs of their own,
    because they were requeued or changed alone."""
    array = job.array
    if array is None or job.state is not JobState.RUNNING:
        return job.state
    return JobState.PENDING if array.requeued and not array.running else job.state
