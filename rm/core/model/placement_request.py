"""A job as a placement policy sees it."""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.demand import Demand
from rm.core.model.job import Job
from rm.core.model.progress import remaining_us
from rm.core.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The `demand` decides where the job fits, and whether it does.

    Among the hosts that fit a policy may also choose by the rest: `job` and `attempt` number its lots,
    and `remaining_us` is what it will add to the work of its hosts (None = nobody said).
    """

    demand: Demand
    job: int = 0
    attempt: int = 0
    remaining_us: int | None = None


def request_of(job: Job, snapshot: Snapshot) -> PlacementRequest:
    left_us = remaining_us(job, snapshot.progress.get(job.id), snapshot.now_us)
    return PlacementRequest(job.demand, job.id, job.attempt, left_us)
