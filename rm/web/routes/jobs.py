"""`/v1/jobs` and `/v1/queue`: jobs as they are, why, and what their users do to them. The contract is
docs/http-api.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from aiohttp import web

from rm.adapters.store.audit_scope import about
from rm.api import job_requests, jobs, reasons
from rm.api.job_rows import JobRow
from rm.api.routes import JOBS_MOST
from rm.collector import uncollected
from rm.core.model.job import Job, JobState
from rm.core.model.priority_parts import PriorityParts
from rm.core.model.reasons import ReasonCode
from rm.errors import Forbidden, UsageError
from rm.shown_ids import shown_id
from rm.web import wire
from rm.web.answers import (
    explanation,
    full_job_of,
    job_of,
    respond,
    respond_as,
    respond_jobs,
    respond_rows,
    respond_written_rows,
    typed,
)
from rm.web.callers.access import Gate
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs, array_tasks_of, signal_to_of
from rm.web.handling import made, number, settled, while_connected
from rm.web.kept_rows import KeptRows
from rm.web.planning_ports import Answer
from rm.web.ports import Service

WAIT_MAX_S = 300.0
OF_RUNNING = (ReasonCode.LEASE, ReasonCode.LEFT_ALONE)  # that the job itself does not keep


class Asked(TypedDict):
    """Keywords of the service's `jobs`."""

    states: frozenset[JobState]
    user: str
    name: str
    limit: int
    everything: bool
    before: int


class JobRoutes:
    """`gate` records what administrators read of others."""

    def __init__(self, service: Service, gate: Gate, visible: VisibleJobs) -> None:
        self._service = service
        self._gate = gate
        self._visible = visible
        self._kept = KeptRows()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/jobs", self.jobs),
            web.get("/v1/jobs/rows", self.rows),
            web.get("/v1/jobs/starts", self.starts),
            web.get("/v1/jobs/priorities", self.priorities),
            web.get("/v1/jobs/priority-weights", self.priority_weights),
            web.delete("/v1/jobs", self.cancel_all),
            web.get("/v1/queue", self.queue),
            web.get(r"/v1/jobs/{id:\d{1,18}}", self.job),
            web.delete(r"/v1/jobs/{id:\d{1,18}}", self.cancel),
            web.post(r"/v1/jobs/{id:\d{1,18}}/{verb:hold|release|requeue}", self.change),
            web.post(r"/v1/jobs/{id:\d{1,18}}/suspend", self.suspend),
            web.post(r"/v1/jobs/{id:\d{1,18}}/resume", self.resume),
            web.post(r"/v1/jobs/{id:\d{1,18}}/array-limit", self.limit_array),
            web.get(r"/v1/jobs/{id:\d{1,18}}/wait", self.wait),
            web.get(r"/v1/jobs/{id:\d{1,18}}/why", self.why),
            web.get(r"/v1/jobs/{id:\d{1,18}}/iterations", self.iterations),
        ]

    async def jobs(self, request: web.Request) -> web.Response:
        asked = self._asked(request)
        if asked is None:
            return respond(jobs.Jobs(jobs=[]))
        found, reasons = await settled(self._service.reading.jobs_and_reasons(**asked))
        found, more = _page(found, asked)
        told = await settled(self._service.reading.progress([job.id for job in found if job.occupies]))
        sight = await self._visible.sight(request)

        def shown(job: Job) -> jobs.Job:
            seen, partition = sight.job(reasons.shown(job)), reasons.partitions.get(job.id, "")
            return job_of(seen, told.get(job.id), partition)

        return await listed(request, found, shown, more=more)

    async def rows(self, request: web.Request) -> web.Response:
        asked = self._asked(request)
        if asked is None:
            return respond(jobs.JobRows(columns=JobRow._fields, rows=()))
        found, reasons = await settled(self._service.reading.jobs_and_reasons(**asked, by_rests=True))
        found, more = _page(found, asked)
        sight = await self._visible.sight(request)

        def answer() -> web.Response:
            if not asked["everything"]:
                with uncollected():
                    return respond_written_rows(self._kept.texts(found, reasons, sight), more)
            # out of the store: these jobs are read for this answer, and are no others' version
            of_job, partitions = reasons.of_job, reasons.partitions
            return respond_rows(
                ((sight.job(job), of_job(job), partitions.get(job.id, "")) for job in found), more
            )

        self._kept.stay()
        return await made(request, answer, len(found))

    async def starts(self, request: web.Request) -> web.Response:
        found, users = await settled(self._service.foresight.starts())
        sight, knows = await self._visible.sight(request), self._visible.knows(request[CALLER])
        known = [sight.start(one) for one in found.starts.values() if knows(users[one.job])]
        return respond(
            reasons.Starts(starts=[typed(one, reasons.Start) for one in known], until_us=found.until_us)
        )

    async def priorities(self, request: web.Request) -> web.Response:
        found, knows = await settled(self._service.priorities.parts()), self._visible.knows(request[CALLER])
        known = [priority_of(job, parts) for job, (parts, user) in found.items() if knows(user)]
        return respond(reasons.Priorities(priorities=known))

    async def priority_weights(self, request: web.Request) -> web.Response:
        return respond(typed(self._service.priorities.weights(), reasons.PriorityWeights))

    def _asked(self, request: web.Request) -> Asked | None:
        """What the service is asked for: one job more than a page holds; None: of nobody."""
        wire.fields(request.query, "state", "user", "mine", "name", "limit", "before", "all")
        query = request.query
        # asked for by name, they would be missed in a user namespace, where the caller has another one
        caller = request[CALLER]
        mine = caller.user if query.get("mine", "") not in ("", "0") else ""
        states = wire.states_from(query.get("state", ""))
        user = self._visible.whose(caller, mine or query.get("user", ""))
        if user is None:
            return None
        return {
            "states": states,
            "user": user,
            "name": query.get("name", ""),
            "limit": min(int(number(request, "limit", 0)) or JOBS_MOST, JOBS_MOST) + 1,
            "everything": query.get("all", "") not in ("", "0"),
            "before": int(number(request, "before", 0)),
        }

    async def queue(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "user", "limit")
        caller, limit = request[CALLER], int(number(request, "limit", 0))
        user = self._visible.whose(caller, request.query.get("user", ""))
        if user is None:
            return respond(jobs.Jobs(jobs=[]))
        found = await settled(self._service.reading.queue(user=user, limit=limit))
        sight = await self._visible.sight(request)
        return await listed(request, found, lambda job: job_of(sight.job(job)))

    async def job(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        found = await self._visible.described(request)
        job = found.job
        own = caller.user == job.spec.user
        private = own or caller.admin
        if private and not own:
            await self._gate.read_of_others(request)
        return respond(jobs.WholeJob(job=full_job_of(found, private)))

    async def cancel(self, request: web.Request) -> web.Response:
        job_id, caller = await self._visible.owned(request)
        signal = int(number(request, "signal", 0)) or None
        if signal is not None and signal > 64:
            raise UsageError(f"There is no signal {signal}.")
        signal_to = signal_to_of(request)
        tasks = array_tasks_of(request)
        job = await settled(self._service.changes.cancel(job_id, caller.user, signal, tasks, signal_to))
        return await self._visible.changed(request, job)

    async def cancel_all(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "user", "name", "state")
        query, caller = request.query, request[CALLER]
        caller.must_be_somebody()
        asked, name = query.get("user", ""), query.get("name", "")
        user = self._visible.whose(caller, asked)
        states = wire.states_from(query.get("state", ""))
        if not (asked or name or states):
            raise UsageError("Say whose jobs, of which name, or in which state.")
        about(f"jobs of user '{asked}', name '{name}', state '{query.get('state', '')}'")
        listed = (
            ()
            if user is None
            else await settled(
                self._service.reading.jobs(states=states, user=user, name=name, limit=0, everything=False)
            )
        )
        mine: list[int] = []
        refused: list[jobs.NotCancelled] = []

        def judge() -> None:
            for job in listed:
                if job.state.final:
                    continue
                try:
                    caller.must_own(job.spec.user, f"Job {job.id}")
                except Forbidden as error:
                    refused.append(jobs.NotCancelled(job=job.id, message=error.what))
                else:
                    mine.append(job.id)

        await made(request, judge, len(listed))
        done = await settled(self._service.changes.cancel_all(mine, caller.user, states))
        sight = await self._visible.sight(request)

        def answer() -> web.Response:
            return respond(jobs.Cancelled(jobs=[job_of(sight.job(job)) for job in done], refused=refused))

        return await made(request, answer, len(done) + len(refused))

    async def change(self, request: web.Request) -> web.Response:
        job_id, caller = await self._visible.owned(request)
        tasks, verb = array_tasks_of(request), request.match_info["verb"]
        if verb == "requeue":
            failed, hold = (request.query.get(name, "") not in ("", "0") for name in ("failed", "hold"))
            job = await settled(self._service.changes.requeue(job_id, caller.user, tasks, failed, hold))
        else:
            act = self._service.changes.hold if verb == "hold" else self._service.changes.release
            as_admin = caller.operates and request.query.get("uhold", "") in ("", "0")
            job = await settled(act(job_id, caller.user, tasks, as_admin=as_admin))
        return await self._visible.changed(request, job)

    async def suspend(self, request: web.Request) -> web.Response:
        return await self._let(request, self._service.changes.suspend)

    async def resume(self, request: web.Request) -> web.Response:
        return await self._let(request, self._service.changes.resume_job)

    async def _let(self, request: web.Request, act: Callable[[int, str, str], Answer[Job]]) -> web.Response:
        job_id, user = int(request.match_info["id"]), request[CALLER].user
        job = await settled(act(job_id, user, array_tasks_of(request)))
        return await self._visible.changed(request, job)

    async def limit_array(self, request: web.Request) -> web.Response:
        job_id, caller = await self._visible.owned(request)
        asked = wire.typed_body(await request.read(), job_requests.ArrayLimit)
        job = await settled(self._service.changes.limit_array(job_id, caller.user, asked.limit))
        return await self._visible.changed(request, job)

    async def wait(self, request: web.Request) -> web.Response:
        timeout_s = min(number(request, "timeout_s", 60.0), WAIT_MAX_S)
        tasks = array_tasks_of(request)
        found = await self._visible.job(request)
        job_id = int(request.match_info["id"]) if tasks else found.id
        job = await while_connected(request, settled(self._service.reading.wait(job_id, timeout_s, tasks)))
        return respond(
            jobs.Waited(job=job_of((await self._visible.sight(request)).job(job)), final=job.state.final)
        )

    async def why(self, request: web.Request) -> web.Response:
        job, sight = await self._visible.job(request), await self._visible.sight(request)
        # an element of an array without a job of its own is called by the array's id
        tasks = str(job.array_task) if job.id == job.array_job else ""
        told = await while_connected(request, settled(self._service.reading.why(job.id, tasks)))
        answer = sight.explained(told, job.spec.user)
        if job.state is not JobState.PENDING or job.launch_failures:
            now = [sight.reason(r) for r in answer["reasons"] if r.code in OF_RUNNING]
            answer = {**answer, "reasons": now or ([job.reason] if job.reason else [])}
        start, no_start, priority = None, "", None
        if job.state is JobState.PENDING:
            found = await settled(self._service.priorities.parts(job.id))
            priority = priority_of(job.id, found[job.id][0]) if job.id in found else None
            foreseen, _ = await settled(self._service.foresight.starts())
            if (known := foreseen.starts.get(job.id)) is not None and not job.held:
                start = sight.start(known)
            else:
                no_start = foreseen.no_start(job)
        ref = shown_id(job.id, job.array_job, job.array_task)
        told = {**answer, "ref": ref, "start": start, "no_start": no_start, "priority": priority}
        return respond(explanation(told, reasons.Why))

    async def iterations(self, request: web.Request) -> web.Response:
        last = int(number(request, "last", 0))
        answer = await settled(self._service.iterations((await self._visible.job(request)).id))
        return respond_as(jobs.Iterations, {**answer, "items": answer["items"][-last:]})


def priority_of(job: int, parts: PriorityParts) -> reasons.Priority:
    return reasons.Priority(
        job=job, sum=parts.sum, site=parts.site, age=parts.age, fair_share=parts.fair_share, qos=parts.qos,
        partition=parts.partition, size=parts.size, nice=parts.nice, partitions=parts.partitions,
    )  # fmt: skip


def _page(found: Sequence[Job], asked: Asked | None) -> tuple[Sequence[Job], bool]:
    """The newest, as many as were asked for, and whether there are older ones."""
    most = asked["limit"] - 1 if asked else 0
    return found[-most:] if most else (), len(found) > most


async def listed(
    request: web.Request, found: Sequence[Job], shown: Callable[[Job], jobs.Job], more: bool = False
) -> web.Response:
    def answer() -> web.Response:
        return respond_jobs(map(shown, found), more)

    return await made(request, answer, len(found))
