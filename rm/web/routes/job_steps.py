"""`GET /v1/jobs/steps`: the accounting of jobs' steps. The contract is docs/http-api.md."""

from __future__ import annotations

import re
from typing import cast

from aiohttp import web

from rm.api.job_steps import (
    STEP_JOBS_MOST,
    STEPS_MOST,
    JobStep,
    JobSteps,
    StepState,
    StepUsed,
    StepUsedNow,
    UsedNow,
)
from rm.core.model.job import Job
from rm.core.model.job_step import JobStep as Step
from rm.core.model.job_step import StepName, ended_us, state_of
from rm.errors import NotFound, UsageError
from rm.web import wire
from rm.web.answers import respond, typed
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import made, number, settled
from rm.web.ports import Service

_ID = re.compile(r"[0-9]{1,18}\Z")
_NAME = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,9})\Z")


class JobStepRoutes:
    def __init__(self, service: Service, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/jobs/steps", self.steps),
            web.get(r"/v1/jobs/{id:\d{1,18}}/used", self.used_now),
        ]

    async def steps(self, request: web.Request) -> web.Response:
        """Jobs that are not known, or not to the caller, have none."""
        wire.fields(request.query, "jobs", "after", "limit")
        caller, sight = request[CALLER], await self._visible.sight(request)
        jobs: dict[int, Job] = {}
        for job_id in _ids(request.query.get("jobs", "")):
            try:
                job = await settled(self._service.reading.job(job_id))
            except NotFound:
                continue
            if self._visible.whose(caller, job.spec.user) is not None:
                jobs[job_id] = sight.job(job)
        limit = min(int(number(request, "limit", 0)) or STEPS_MOST, STEPS_MOST)
        after = _name(request.query.get("after", ""))
        found, coming = await settled(self._service.reading.job_steps(list(jobs), after, limit + 1))
        private = {job_id for job_id, job in jobs.items() if caller.user != job.spec.user}
        if caller.operates:
            private.clear()

        def answer() -> web.Response:
            told = []
            for step in found[:limit]:
                job = step.name.job
                line = caller.user == jobs[job].spec.user or caller.admin
                told.append(_told(step, jobs[job], line=line, private=job in private, coming=job in coming))
            return respond(JobSteps(steps=told, more=len(found) > limit))

        return await made(request, answer, len(found))

    async def used_now(self, request: web.Request) -> web.Response:
        job_id, _ = await self._visible.owned(request)
        attempt, found, silent = await settled(self._service.used_now.of(job_id))

        def answer() -> web.Response:
            lines = [StepUsedNow(step=step, used=typed(used, StepUsed)) for step, used in found]
            return respond(UsedNow(job=job_id, attempt=attempt, lines=lines, silent=silent))

        return await made(request, answer, len(found))


def _told(step: Step, job: Job, *, line: bool, private: bool, coming: bool) -> JobStep:
    name = step.name
    hidden = private and not job.tasks and not job.earlier  # the caller may not know where it ran
    return JobStep(
        job=name.job,
        attempt=name.attempt,
        step=name.step,
        name="" if private else step.title,
        state=cast(StepState, state_of(step, job, coming).value),
        hosts="" if hidden else step.hosts,
        hosts_count=step.hosts_count,
        tasks=step.tasks,
        cpus=step.cpus,
        started_us=step.started_us,
        ended_us=ended_us(step, job),
        exit_code=step.code,
        exit_signal=step.signal,
        used=None if step.used is None or hidden else typed(step.used, StepUsed),
        submit_line=step.submit_line if line else "",
    )


def _ids(text: str) -> list[int]:
    words = text.split(",")
    wrong = next((word for word in words if not _ID.match(word)), None)
    if wrong is not None:
        raise UsageError(f"'{wrong}' is no job id.", "Write jobs=36,37.")
    if len(words) > STEP_JOBS_MOST:
        raise UsageError(f"At most {STEP_JOBS_MOST} jobs can be asked for at once.")
    return [int(word) for word in words]


def _name(text: str) -> StepName | None:
    found = _NAME.match(text)
    if text and not found:
        raise UsageError(f"'{text}' is no step.", "Write JOB.ATTEMPT.STEP.")
    return StepName(*map(int, found.groups())) if found else None
