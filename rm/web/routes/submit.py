"""`POST /v1/jobs`, `/v1/plan` and `/v1/jobs/ID/update`: who may ask for what. The contract is
docs/http-api.md."""

from __future__ import annotations

import os
from typing import Any

from aiohttp import web

from rm.api import job_requests, jobs, reasons
from rm.arrays import parse
from rm.config import Config
from rm.core.model.job import Job, JobSpec
from rm.core.model.replacing import replace
from rm.core.scheduling.foreseen import WAITS_FOR_JOBS
from rm.errors import Forbidden, ImpossibleRequest, UsageError
from rm.units import parse_time_limit_us
from rm.web import wire
from rm.web.answers import explanation, respond
from rm.web.callers.identity import CALLER, Caller
from rm.web.callers.visible_jobs import VisibleJobs, array_tasks_of
from rm.web.doors.limits import LIMITS
from rm.web.handling import beside, settled, while_connected
from rm.web.ports import Service
from rm.web.routes.fence_defaults import FenceDefaults

SPECS_PER_REQUEST = 10  # of a user's share of requests: this many jobs in one cost as much as one request
KEY_MAX = 128


class SubmitRoutes:
    """The defaults of jobs are `config`'s."""

    def __init__(self, service: Service, config: Config, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible
        self._priority_max = config.limits.max_priority
        self._array_size = config.limits.array_size
        self._specs_max = config.limits.specs_per_request
        self._root_runs = config.jobs.allow_root or bool(config.jobs.run_root_as)
        self._deliver = "" if config.jobs.output else config.jobs.deliver
        self._here = os.uname().nodename
        self._fences = FenceDefaults.of(config.jobs)
        self._defaults = {
            "output": config.jobs.output,
            "partition": config.jobs.partition,
            "launch": config.jobs.launch,
            "time_limit_us": parse_time_limit_us(config.jobs.time_limit),
        }
        if not self._fences.by_partition_us:  # one for all jobs
            self._defaults["fence_us"] = self._fences.of_all_us

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/jobs", self.submit),
            web.post("/v1/plan", self.plan),
            web.post(r"/v1/jobs/{id:\d{1,18}}/update", self.update),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        specs, several = await self._specs(request)
        key = request.headers.get("Idempotency-Key", "")
        if len(key) > KEY_MAX or not key.isprintable():
            raise UsageError(f"The idempotency key is longer than {KEY_MAX} characters or not printable.")
        try:
            ids = await settled(
                self._service.submissions.submit(specs, key, self._visible.knows(request[CALLER]))
            )
        except ImpossibleRequest as error:
            raise (await self._visible.sight(request)).refusal(error) from None
        told = jobs.Submitted(jobs=list(ids)) if several else jobs.Submitted(job=ids[0])
        return respond(told, 201)

    async def plan(self, request: web.Request) -> web.Response:
        specs, several = await self._specs(request)
        if several:
            raise UsageError("A plan is made for one job: send 'spec'.")
        plan = self._service.submissions.plan(specs[0], self._visible.knows(request[CALLER]))
        told = await while_connected(request, settled(plan))
        sight = await self._visible.sight(request)
        if told["placement"] is None:
            foreseen = await while_connected(request, settled(self._service.foresight.start_of_new(specs[0])))
            if foreseen is None:
                told = {**told, "no_start": WAITS_FOR_JOBS}
            elif (start := foreseen.starts.get(0)) is not None:
                told = {**told, "start": sight.start(start)}
            else:
                told = {**told, "no_start": foreseen.no_start(Job(0, specs[0], 0, held=specs[0].hold))}
        return respond(explanation(sight.explained(told, specs[0].user), reasons.Plan))

    async def update(self, request: web.Request) -> web.Response:
        job_id, caller = await self._visible.owned(request)
        asked = wire.typed_body(await request.read(), job_requests.JobUpdate)
        update = wire.update_from(asked)
        self._may_rank(f"Job {job_id}", update.priority or 0, caller)
        knows = self._visible.knows(caller)
        try:
            change = self._service.changes.update
            tasks = array_tasks_of(request)
            job = await settled(change(job_id, caller.user, update, knows, caller.admin, tasks))
        except ImpossibleRequest as error:
            raise (await self._visible.sight(request)).refusal(error) from None
        return await self._visible.changed(request, job)

    async def _specs(self, request: web.Request) -> tuple[list[JobSpec], bool]:
        """The jobs of the request's body, as the caller may ask for them; and whether it names a list."""
        caller = request[CALLER]
        body = await request.read()

        def read() -> tuple[list[JobSpec], bool]:
            values, several = wire.submission(body, self._specs_max)
            specs = {key: self._spec(value, caller) for key, value in {id(v): v for v in values}.items()}
            return [specs[id(value)] for value in values], several

        specs, several = await beside(request, read, rests=True) if len(body) > wire.SMALL_BYTES else read()
        request.app[LIMITS].charge(request, len(specs) // SPECS_PER_REQUEST)
        return specs, several

    def _spec(self, value: Any, caller: Caller) -> JobSpec:
        user = self._user_for(value, caller)
        # files on this machine are written for no other than the kernel's word names, and never for root
        deliver = self._deliver if user == caller.user and caller.local and caller.uid != 0 else ""
        asked = wire.spec_from(value, user, self._defaults, deliver)
        if asked.deliver and asked.submit_host != self._here:  # its directory is on another machine
            asked = replace(asked, deliver="")
        fence_us = self._fences.fence_us_of(asked)
        spec = asked if asked.fence_us == fence_us else replace(asked, fence_us=fence_us)
        self._may_rank(f"The job '{spec.name}'", spec.priority, caller)
        self._may_number(spec)
        return spec

    def _user_for(self, value: Any, caller: Caller) -> str:
        """The caller; an administrator may submit for another user."""
        user = caller.user
        named = value.get("user") if isinstance(value, dict) else None
        if named and named != user:
            caller.must_administer(f"submit a job for {named}")
            user = str(named)
        if user == "root" and not self._root_runs:  # the agents refuse it too
            raise Forbidden(
                "Jobs of root are not run.",
                "Submit as another user, or set jobs.run_root_as or jobs.allow_root in rm.toml.",
            )
        return user

    def _may_number(self, spec: JobSpec) -> None:
        """The indices of an array are below the limit, as Slurm's are below MaxArraySize."""
        last = parse(spec.array).last if spec.array else 0
        if last >= self._array_size:
            most = self._array_size - 1
            raise UsageError(
                f"The array '{spec.array[:80]}' has the index {last}, and the largest is {most}.",
                "Choose smaller indices, or raise limits.array_size in rm.toml.",
            )

    def _may_rank(self, what: str, priority: int, caller: Caller) -> None:
        """A priority above the limit needs an administrator."""
        if priority > self._priority_max and not caller.admin:
            raise Forbidden(
                f"{what} asks for priority {priority}, and {caller.user} may ask for at "
                f"most {self._priority_max}.",
                "Leave --priority out; administrators may give more, or set limits.max_priority in rm.toml.",
            )
