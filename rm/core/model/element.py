"""An element of a job array as a job of its own: what it has of the array."""

from __future__ import annotations

from rm.core.model.job import Job, JobSpec
from rm.core.model.replacing import replace


def sharing(job: Job, spec: JobSpec) -> Job:
    """The element of an array with this specification, but for what was changed of it alone."""
    shared: Job = replace(job, spec=spec if job.own is None else job.own.applied(spec))
    return shared
