"""Where a pending job stands: which jobs are tried before it, in the order of the queue policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rm.core.model.job import Job
from rm.core.model.snapshot import Snapshot
from rm.core.ports import QueuePolicy
from rm.core.scheduling.gates import by_tier
from rm.core.scheduling.held import not_yet

NAMED_MAX = 5  # jobs that are listed by name


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """`jobs_ahead` are tried before the job on hosts that it could have; `ahead` are the first of them."""

    jobs_ahead: int
    ahead: tuple[Job, ...] = ()

    @property
    def position(self) -> int:
        return self.jobs_ahead + 1


def queue_position(
    job: Job, pending: Iterable[Job], queue: QueuePolicy, snapshot: Snapshot
) -> QueuePosition | None:
    """Of one of the pending jobs; None while it may not be tried at all (held, or before its begin time).

    A job that may not be tried now is ahead of none, and so is one of a partition without a host in common.
    """
    if not_yet(job, snapshot.now_us) is not None:
        return None
    ready = [other for other in pending if not_yet(other, snapshot.now_us) is None]
    rivals: dict[str, bool] = {}  # by what was asked for as partition
    hosts = _hosts_of(job, snapshot)
    count = 0
    first: list[Job] = []
    for other in by_tier(queue.order(ready, snapshot), snapshot):
        if other.id == job.id:
            return QueuePosition(count, tuple(first))
        asked = other.spec.partition
        if asked not in rivals:
            shared = set(other.spec.partitions) & set(job.spec.partitions)
            rivals[asked] = bool(shared) or not hosts.isdisjoint(_hosts_of(other, snapshot))
        if rivals[asked]:
            count += 1
            if count <= NAMED_MAX:
                first.append(other)
    return None  # it was placed or has ended meanwhile


def _hosts_of(job: Job, snapshot: Snapshot) -> frozenset[str]:
    """Those of the job's partitions; of a job without a partition all."""
    asked = set(job.spec.partitions)
    return frozenset(n for n, host in snapshot.hosts.items() if not asked or asked & set(host.partitions))
