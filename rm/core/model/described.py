"""A job as it is shown on its own: with what is known beside its record."""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.alignment import Schedule
from rm.core.model.job import Job
from rm.core.model.progress import Progress


@dataclass(frozen=True, slots=True)
class Described:
    """`schedule` is how the job keeps its place in time, None when it is not aligned; `progress` how far it
    has come by its reports, None when nothing is known."""

    job: Job
    schedule: Schedule | None = None
    progress: Progress | None = None
