"""A job as a placement policy sees it."""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.asked.demand import Demand
from rm.core.model.host_reservation import closed_to
from rm.core.model.job import Job
from rm.core.model.progress import remaining_us
from rm.core.model.quickly_made import quickly_made
from rm.core.model.snapshot import Snapshot
from rm.core.model.switches import insists


@quickly_made
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
    demand = job.demand
    if demand.switches and not insists(job, snapshot):
        demand = demand._replace(switches=0)
    if foreign := foreign_to(demand, snapshot):
        demand = demand.apart_from(foreign)
    if snapshot.reservations:
        demand = demand.kept_from(closed_to(job.spec, snapshot.now_us, snapshot.reservations, snapshot.hosts))
    return PlacementRequest(demand, job.id, job.attempt, left_us)


def foreign_to(demand: Demand, snapshot: Snapshot) -> set[str]:
    """The hosts that a job may not share with those that are there: hosts of another user's job that shares
    them with its own user's alone, and if it does so itself, all with a job of another user, or of nobody
    knows whom.

    Source: sbatch(1) of Slurm 22.05, --exclusive=user.
    """
    placed = snapshot.placed
    if not demand.exclusive_user:
        if not snapshot.by_user:
            return set()
        others = (placed[job] for job in snapshot.by_user if job in placed)
        return {host for one in others if one.user != demand.user for host in one.placement.hosts}
    found = {host for one in placed.values() if one.user != demand.user for host in one.placement.hosts}
    return found | {host for host, free in snapshot.free.items() if free.strays}
