"""A job as it is shown on its own: with what is known beside its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rm.core.model.host import Host
from rm.core.model.job import Job
from rm.core.model.network.alignment import Schedule
from rm.core.model.progress import Progress


@dataclass(frozen=True, slots=True)
class Described:
    """`schedule` is how the job keeps its place in time, None when it is not aligned; `progress` how far it
    has come by its reports, None when nothing is known; `partition` the one of its partitions that it runs
    or ran in, "" when it has no hosts or only one partition was asked for."""

    job: Job
    schedule: Schedule | None = None
    progress: Progress | None = None
    partition: str = ""


def partition_of(job: Job, hosts: Mapping[str, Host]) -> str:
    """The one that it was placed in, or else the first that the job asks for and all of its hosts are in:
    there it fitted."""
    if job.partition and job.tasks:
        return job.partition
    its = [hosts[name] for name in {task.host for task in job.tasks} if name in hosts]
    asked = job.spec.partitions
    if not its or len(asked) < 2:
        return ""
    return next((one for one in asked if all(one in host.partitions for host in its)), "")
