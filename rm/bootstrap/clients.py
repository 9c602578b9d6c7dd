"""The clients that run for programs of jobs: who is at the door, and what they may."""

from __future__ import annotations

from aiohttp import web

from rm.adapters.client_process import run_client
from rm.bootstrap.ground import Ground
from rm.bootstrap.jobs import Jobs
from rm.core.people.rights import Scope
from rm.daemon.services.job_clients import Asker, JobClients, Way
from rm.web.callers.identity import OfJob
from rm.web.doors.job_door import JobDoors


def wire_clients(*, ground: Ground, jobs: Jobs, runner: web.AppRunner, folder: str) -> JobClients:
    """For the API that `runner` serves; their doors lie in `folder`."""
    doors, allowed = JobDoors(runner, folder), ground.config.jobs.clients

    async def run(asker: Asker, way: Way) -> None:
        job = OfJob(asker.user, Scope(allowed), f"job {asker.job} on {asker.host}")
        async with doors.open(job) as door:
            await run_client((door, asker.host, asker.user), way.read, way.write)

    return JobClients(
        attend=ground.fleet.attend,
        cluster=ground.fleet.cluster.id,
        user_of=jobs.published.user_of,
        waiting=jobs.waiters.waiting,
        run=None if allowed == "off" else run,
    )
