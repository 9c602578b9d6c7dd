"""The HTTP API over the daemon's Unix socket: parse, check the caller's right, call, answer.

The contract is docs/http-api.md; decisions are the service's.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import web

from rm import __version__
from rm.adapters.store.audit_scope import about
from rm.api import hosts, jobs, network, people, reasons
from rm.api import status as daemon
from rm.api.openapi import document
from rm.api.routes import JOBS_MOST
from rm.config import Config
from rm.core.model.acceptance import NUMBER_MAX
from rm.core.model.described import Described
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.people.rights import Role
from rm.errors import Forbidden, ImpossibleRequest, LimitReached, NotFound, RmError, UsageError
from rm.units import parse_time_limit_us
from rm.web import wire
from rm.web.access import Gate
from rm.web.account_routes import AccountRoutes
from rm.web.accounts import Accounts
from rm.web.alert_routes import AlertRoutes
from rm.web.answers import explanation, full_job_of, host_of, job_of, listed_host, refuse, respond, respond_as
from rm.web.door import Door
from rm.web.etag import tagged
from rm.web.fence_defaults import FenceDefaults
from rm.web.https import HttpsDoor
from rm.web.identity import CALLER, Caller, Doorkeeper
from rm.web.limits import Limits
from rm.web.listener import bind
from rm.web.maddash import Maddash
from rm.web.metrics import metrics_routes
from rm.web.monitor_routes import MonitorRoutes
from rm.web.ports import Answer, Service
from rm.web.shares import retry_after_s
from rm.web.sight import Sight, is_open, sight_of
from rm.web.steps_routes import StepsRoutes

LIMITS = web.AppKey("limits", Limits)
BESIDE = web.AppKey("beside", asyncio.Semaphore)
SPECS_PER_REQUEST = 10  # of a user's share of requests: this many jobs in one cost as much as one request
LONG = 500  # jobs in a list, which is then made beside the event loop
WAIT_MAX_S = 300.0
_STILL_THERE_S = 2.0
KEY_MAX = 128
RETRY_AFTER_S = 1
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = logging.getLogger("rm.web")


def make_app(service: Service, config: Config) -> web.Application:
    """The application; administrators and the defaults of jobs are `config`'s."""
    accounts = Accounts(config)
    keeper = Doorkeeper(accounts, lambda: service.tokens)
    gate = Gate(keeper, config.privacy, lambda: service.audit)
    limits = Limits(config.limits)
    app = web.Application(
        middlewares=[_errors, gate.identifying(), limits.middleware(), gate.middleware(), tagged],
        client_max_size=config.limits.body_bytes,
    )
    app[LIMITS] = limits
    app[BESIDE] = asyncio.Semaphore(1)
    api = _Api(service, config, gate)
    app.add_routes(
        [
            web.get("/v1/status", api.status),
            web.get("/v1/openapi.json", openapi),
            web.get("/v1/me", api.me),
            web.post("/v1/jobs", api.submit),
            web.get("/v1/jobs", api.jobs),
            web.delete("/v1/jobs", api.cancel_all),
            web.get("/v1/queue", api.queue),
            web.post("/v1/plan", api.plan),
            web.get(r"/v1/jobs/{id:\d{1,18}}", api.job),
            web.delete(r"/v1/jobs/{id:\d{1,18}}", api.cancel),
            web.post(r"/v1/jobs/{id:\d{1,18}}/{verb:hold|release|requeue}", api.change),
            web.get(r"/v1/jobs/{id:\d{1,18}}/wait", api.wait),
            web.get(r"/v1/jobs/{id:\d{1,18}}/logs", api.logs),
            web.get(r"/v1/jobs/{id:\d{1,18}}/why", api.why),
            web.get(r"/v1/jobs/{id:\d{1,18}}/iterations", api.iterations),
            web.get("/v1/hosts", api.hosts),
            web.post("/v1/hosts", api.add_hosts),
            web.delete("/v1/hosts/{name}", api.remove_host),
            web.post("/v1/hosts/{name}/drain", api.drain),
            web.post("/v1/hosts/{name}/resume", api.resume),
            web.post("/v1/hosts/{name}/adopt", api.adopt),
            web.get("/v1/hosts/{name}/key", api.present_key),
            web.post("/v1/hosts/{name}/key", api.accept_key),
            web.get("/v1/links", api.links),
            web.get("/v1/network", api.network),
            web.post("/v1/network/measure", api.measure),
        ]
    )
    app.add_routes(metrics_routes(service, api.sight))
    app.add_routes(Maddash(lambda: service.monitoring).routes())
    app.add_routes(AlertRoutes(lambda: service.alerting, api.sight).routes())
    app.add_routes(MonitorRoutes(lambda: service.monitoring, _number).routes())
    app.add_routes(StepsRoutes(lambda: service.steps, _while_connected).routes())
    app.add_routes(AccountRoutes(lambda: service.tokens, lambda: service.audit, accounts, _number).routes())
    return app


async def serve(service: Service, socket_path: str, config: Config) -> web.AppRunner:
    """Listen on `socket_path`; `await runner.cleanup()` ends it and removes the socket.

    Raises:
        Conflict: another daemon already listens there.
    """
    listener = bind(socket_path, config.daemon.shared)
    mine = os.stat(socket_path).st_ino
    app = make_app(service, config)

    async def remove(_: web.Application) -> None:
        with contextlib.suppress(OSError):
            if os.stat(socket_path).st_ino == mine:  # not a successor's
                os.unlink(socket_path)

    app.on_cleanup.append(remove)
    https = HttpsDoor(config.https) if config.https.listen else None
    if https is not None:
        app.on_cleanup.append(https.stop)
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=config.limits.idle_s,
        shutdown_timeout=2,
    )
    await runner.setup()
    await Door(runner, listener, app[LIMITS].guests).start()
    if https is not None:
        try:
            port = await https.start(runner, app[LIMITS].guests)
        except BaseException:
            await runner.cleanup()
            raise
        log.info("https: port %d is open for tokens", port)
    return runner


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RmError as error:
        refused = refuse(error.http_status, type(error).__name__, error.what, error.hint)
        if isinstance(error, LimitReached):
            refused.headers["Retry-After"] = str(retry_after_s(error))
        elif error.http_status == 503:
            refused.headers["Retry-After"] = str(RETRY_AFTER_S)
        return refused
    except web.HTTPException as error:
        if error.status < 400:
            raise
        what = {
            404: f"There is no {request.path} in this API.",
            413: f"The request is larger than {request.client_max_size} bytes (limits.body_bytes).",
        }
        return refuse(
            error.status, "UsageError", what.get(error.status, f"{error.reason}: {request.method}."), ""
        )
    except ConnectionError:
        # the client has gone, by Ctrl-C for one: nobody is left to answer, and nothing is wrong
        return web.Response(status=499)
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return refuse(
            500,
            "RmError",
            "The daemon met a defect of its own; its log has the details.",
            "Please report it.",
        )


async def openapi(request: web.Request) -> web.Response:
    return web.Response(body=document(__version__), content_type="application/json")


async def _settled(answer: Answer[T]) -> T:
    return await answer if inspect.isawaitable(answer) else answer


async def _while_connected(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client has gone."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=_STILL_THERE_S)
            if done:
                return task.result()
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client has gone")
    finally:
        task.cancel()


async def _beside(request: web.Request, work: Callable[[], T]) -> T:
    """Off the event loop, one after the other: several would leave it little of the interpreter."""
    async with request.app[BESIDE]:
        return await asyncio.to_thread(work)


async def _listed(
    request: web.Request, found: Sequence[Job], shown: Callable[[Job], jobs.Job], more: bool = False
) -> web.Response:
    def make() -> web.Response:
        return respond(jobs.Jobs(jobs=list(map(shown, found)), more=more))

    return await _beside(request, make) if len(found) > LONG else make()


def _number(request: web.Request, name: str, default: float, least: float = 0) -> float:
    """Of the query; one that is larger than any that makes sense is as good as the largest."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not number >= least or number == float("inf"):
        raise UsageError(f"'{name}' is '{text}', and must be a number of at least {least:g}.")
    return min(number, NUMBER_MAX)


class _Api:
    def __init__(self, service: Service, config: Config, gate: Gate) -> None:
        self.service = service
        self.gate = gate
        self.privacy = config.privacy
        self.priority_max = config.limits.max_priority
        self.specs_max = config.limits.specs_per_request
        self.root_runs = config.jobs.allow_root or bool(config.jobs.run_root_as)
        self.deliver = "" if config.jobs.output else config.jobs.deliver
        self.fences = FenceDefaults.of(config.jobs)
        self.defaults = {
            "output": config.jobs.output,
            "partition": config.jobs.partition,
            "time_limit_us": parse_time_limit_us(config.jobs.time_limit),
        }

    # -- what the caller may see

    def _whose(self, caller: Caller, user: str) -> str | None:
        """Whose jobs a list may show of those asked for, "" = everybody's; None: nobody's."""
        if not self.privacy.jobs or caller.operates:
            return user
        return caller.user if caller.user and user in ("", caller.user) else None

    def _knows(self, caller: Caller) -> Callable[[str], bool]:
        """Of which users' jobs the caller may know."""
        return lambda user: self._whose(caller, user) is not None

    async def _job(self, request: web.Request) -> Job:
        """The job of the path, as the caller may see it.

        Raises:
            NotFound: there is none that the caller may know of.
        """
        return (await self._described(request)).job

    async def _described(self, request: web.Request) -> Described:
        """The job of the path, as the caller may see it, with what is known beside its record.

        Raises:
            NotFound: there is none that the caller may know of.
        """
        caller, job_id = request[CALLER], int(request.match_info["id"])
        try:
            found = await _settled(self.service.described(job_id))
        except NotFound:
            found = None
        if found is None or self._whose(caller, found.job.spec.user) is None:
            raise NotFound(f"There is no job {job_id}.", "`rmx queue --all` lists those that you may see.")
        sight = await self.sight(request)
        return Described(sight.job(found.job), sight.schedule(found.schedule), found.progress)

    async def sight(self, request: web.Request) -> Sight:
        """What of others the caller may see."""
        caller = request[CALLER]
        if caller.operates or is_open(self.privacy) or not caller.user:
            return sight_of(self.privacy, caller, ())
        own = self.service.jobs(states=frozenset(), user=caller.user, name="", limit=0, everything=False)
        return sight_of(self.privacy, caller, {job.id for job in await _settled(own)})

    async def _owned(self, request: web.Request, least: Role = Role.OPERATOR) -> tuple[int, Caller]:
        """The id of the job in the path, which must be the caller's unless the role is `least` or above."""
        job_id = int(request.match_info["id"])
        caller = request[CALLER]
        if not caller.role >= least:
            job = await self._job(request)
            caller.must_own(job.spec.user, f"Job {job_id}", least)
        return job_id, caller

    async def me(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        return respond(people.Me(user=caller.user, role=caller.role.value))

    # -- jobs

    async def submit(self, request: web.Request) -> web.Response:
        specs, several = await self._specs(request)
        key = request.headers.get("Idempotency-Key", "")
        if len(key) > KEY_MAX or not key.isprintable():
            raise UsageError(f"The idempotency key is longer than {KEY_MAX} characters or not printable.")
        try:
            ids = await _settled(self.service.submit(specs, key, self._knows(request[CALLER])))
        except ImpossibleRequest as error:
            raise (await self.sight(request)).refusal(error) from None
        told = jobs.Submitted(jobs=list(ids)) if several else jobs.Submitted(job=ids[0])
        return respond(told, 201)

    def _spec(self, value: Any, caller: Caller) -> JobSpec:
        user = self._user_for(value, caller)
        # files on this machine are written for no other than the kernel's word names, and never for root
        deliver = self.deliver if user == caller.user and caller.local and caller.uid != 0 else ""
        spec = self.fences.applied(wire.spec_from(value, user, self.defaults, deliver))
        self._may_rank(spec, caller)
        return spec

    async def _specs(self, request: web.Request) -> tuple[list[JobSpec], bool]:
        """The jobs of the request's body, as the caller may ask for them; and whether it names a list."""
        caller = request[CALLER]
        body = await request.read()

        def read() -> tuple[list[JobSpec], bool]:
            values, several = wire.submission(body, self.specs_max)
            return [self._spec(value, caller) for value in values], several

        specs, several = await _beside(request, read) if len(body) > wire.SMALL_BYTES else read()
        request.app[LIMITS].charge(request, len(specs) // SPECS_PER_REQUEST)
        return specs, several

    def _may_rank(self, spec: JobSpec, caller: Caller) -> None:
        """A priority above the limit needs an administrator."""
        if spec.priority > self.priority_max and not caller.admin:
            raise Forbidden(
                f"The job '{spec.name}' asks for priority {spec.priority}, and {caller.user} may ask for at "
                f"most {self.priority_max}.",
                "Leave --priority out; administrators may give more, or set limits.max_priority in rm.toml.",
            )

    def _user_for(self, value: Any, caller: Caller) -> str:
        """The caller; an administrator may submit for another user."""
        user = caller.user
        named = value.get("user") if isinstance(value, dict) else None
        if named and named != user:
            caller.must_administer(f"submit a job for {named}")
            user = str(named)
        if user == "root" and not self.root_runs:  # the agents refuse it too
            raise Forbidden(
                "Jobs of root are not run.",
                "Submit as another user, or set jobs.run_root_as or jobs.allow_root in rm.toml.",
            )
        return user

    async def plan(self, request: web.Request) -> web.Response:
        specs, several = await self._specs(request)
        if several:
            raise UsageError("A plan is made for one job: send 'spec'.")
        told = await _settled(self.service.plan(specs[0], self._knows(request[CALLER])))
        return respond(explanation((await self.sight(request)).explained(told, specs[0].user), reasons.Plan))

    async def jobs(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "state", "user", "mine", "name", "limit", "before", "all")
        query = request.query
        most = min(int(_number(request, "limit", 0)) or JOBS_MOST, JOBS_MOST)
        # asked for by name, they would be missed in a user namespace, where the caller has another one
        caller = request[CALLER]
        mine = caller.user if query.get("mine", "") not in ("", "0") else ""
        states = wire.states_from(query.get("state", ""))
        user = self._whose(caller, mine or query.get("user", ""))
        if user is None:
            return respond(jobs.Jobs(jobs=[]))
        found = await _settled(
            self.service.jobs(
                states=states,
                user=user,
                name=query.get("name", ""),
                limit=most + 1,
                everything=query.get("all", "") not in ("", "0"),
                before=int(_number(request, "before", 0)),
            )
        )
        newest = found[-most:]
        told = await _settled(self.service.progress([job.id for job in newest if job.occupies]))
        sight = await self.sight(request)
        return await _listed(
            request, newest, lambda job: job_of(sight.job(job), told.get(job.id)), more=len(found) > most
        )

    async def queue(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "user", "limit")
        caller, limit = request[CALLER], int(_number(request, "limit", 0))
        user = self._whose(caller, request.query.get("user", ""))
        if user is None:
            return respond(jobs.Jobs(jobs=[]))
        found = await _settled(self.service.queue(user=user, limit=limit))
        sight = await self.sight(request)
        return await _listed(request, found, lambda job: job_of(sight.job(job)))

    async def job(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        found = await self._described(request)
        job = found.job
        own = caller.user == job.spec.user
        private = own or caller.admin
        if private and not own:
            await self.gate.read_of_others(request)
        return respond(jobs.WholeJob(job=full_job_of(job, found.schedule, found.progress, private)))

    async def cancel(self, request: web.Request) -> web.Response:
        job_id, caller = await self._owned(request)
        signal = int(_number(request, "signal", 0)) or None
        if signal is not None and signal > 64:
            raise UsageError(f"There is no signal {signal}.")
        job = await _settled(self.service.cancel(job_id, caller.user, signal))
        return respond(jobs.OneJob(job=job_of(job)))

    async def cancel_all(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "user", "name", "state")
        query, caller = request.query, request[CALLER]
        caller.must_be_somebody()
        asked, name = query.get("user", ""), query.get("name", "")
        user = self._whose(caller, asked)
        states = wire.states_from(query.get("state", ""))
        if not (asked or name or states):
            raise UsageError("Say whose jobs, of which name, or in which state.")
        about(f"jobs of user '{asked}', name '{name}', state '{query.get('state', '')}'")
        listed = (
            ()
            if user is None
            else await _settled(
                self.service.jobs(states=states, user=user, name=name, limit=0, everything=False)
            )
        )
        mine: list[int] = []
        refused: list[jobs.NotCancelled] = []
        for job in listed:
            if job.state.final:
                continue
            try:
                caller.must_own(job.spec.user, f"Job {job.id}")
            except Forbidden as error:
                refused.append(jobs.NotCancelled(job=job.id, message=error.what))
            else:
                mine.append(job.id)
        done = await _settled(self.service.cancel_all(mine, caller.user))
        answer = jobs.Cancelled(jobs=[job_of(job) for job in done], refused=refused)
        return await _beside(request, partial(respond, answer)) if len(done) > LONG else respond(answer)

    async def change(self, request: web.Request) -> web.Response:
        job_id, caller = await self._owned(request)
        verbs = {"hold": self.service.hold, "release": self.service.release, "requeue": self.service.requeue}
        job = await _settled(verbs[request.match_info["verb"]](job_id, caller.user))
        return respond(jobs.OneJob(job=job_of(job)))

    async def wait(self, request: web.Request) -> web.Response:
        timeout_s = min(_number(request, "timeout_s", 60.0), WAIT_MAX_S)
        job_id = (await self._job(request)).id
        job = await _while_connected(request, _settled(self.service.wait(job_id, timeout_s)))
        return respond(jobs.Waited(job=job_of((await self.sight(request)).job(job)), final=job.state.final))

    async def logs(self, request: web.Request) -> web.StreamResponse:
        job_id, caller = await self._owned(request, Role.ADMIN)
        if caller.admin and (await _settled(self.service.job(job_id))).spec.user != caller.user:
            await self.gate.read_of_others(request)
        stream = request.query.get("stream", "out")
        if stream not in ("out", "err"):
            raise UsageError(f"There is no stream '{stream}'.", "Use out or err.")
        rank, offset = int(_number(request, "task", 0)), int(_number(request, "offset", 0))
        tail, lines = int(_number(request, "tail", 0)), int(_number(request, "lines", 0))
        if sum(map(bool, (tail, lines, offset))) > 1:
            raise UsageError("'offset', 'tail' and 'lines' are mutually exclusive.")
        offset = -tail or offset
        attempt = int(_number(request, "attempt", 0))
        follow = request.query.get("follow", "") not in ("", "0")
        chunks = self.service.logs(job_id, rank, stream, offset, follow, lines, attempt)
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})

        async def next_chunk() -> bytes | None:
            return await anext(chunks, None)

        # the first chunk before the headers: a job without logs is an error, not an empty log
        chunk = await _while_connected(request, next_chunk())
        if note := await _settled(self.service.log_note(job_id, rank, stream, attempt)):
            response.headers["Rm-Note"] = quote(note, safe=" '(),/:;")
        await response.prepare(request)
        while chunk is not None:
            if chunk:
                await response.write(chunk)
            chunk = await _while_connected(request, next_chunk())
        await response.write_eof()
        return response

    async def why(self, request: web.Request) -> web.Response:
        job, sight = await self._job(request), await self.sight(request)
        answer = sight.explained(await _settled(self.service.why(job.id)), job.spec.user)
        if job.state is not JobState.PENDING or job.launch_failures:
            leases = [sight.reason(r) for r in answer["reasons"] if r.code is ReasonCode.LEASE]
            answer = {**answer, "reasons": leases or ([job.reason] if job.reason else [])}
        return respond(explanation(answer, reasons.Why))

    async def iterations(self, request: web.Request) -> web.Response:
        last = int(_number(request, "last", 0))
        answer = await _settled(self.service.iterations((await self._job(request)).id))
        return respond_as(jobs.Iterations, {**answer, "items": answer["items"][-last:]})

    # -- hosts and network

    async def hosts(self, request: web.Request) -> web.Response:
        private = "variables" in request.query
        if private:
            request[CALLER].must_administer("see the variables of hosts")
            await self.gate.read_of_others(request)
        sight = await self.sight(request)
        found = sight.listed(await _settled(self.service.hosts()))
        shown = [listed_host(host, free, ids, private) for host, free, ids in found]
        return respond(hosts.Hosts(hosts=shown))

    async def add_hosts(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read(), request.client_max_size)
        wire.fields(body, "hosts")
        values = body.get("hosts")
        if not isinstance(values, list) or not values:
            raise UsageError("'hosts' must be a list of at least one host.")
        added = await _settled(self.service.add_hosts([wire.host_from(value) for value in values], by))
        return respond(hosts.Hosts(hosts=[host_of(host) for host in added]), 201)

    async def remove_host(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        host = await _settled(self.service.remove_host(request.match_info["name"], by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def drain(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read())
        wire.fields(body, "reason")
        reason = body.get("reason", "")
        if not isinstance(reason, str):
            raise UsageError("'reason' must be text.")
        host = await _settled(self.service.drain(request.match_info["name"], reason, by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def resume(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        host = await _settled(self.service.resume(request.match_info["name"], by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def adopt(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read())
        wire.fields(body, "stop_jobs")
        stop_jobs = body.get("stop_jobs", False)
        if not isinstance(stop_jobs, bool):
            raise UsageError("'stop_jobs' must be true or false.")
        host = await _settled(self.service.adopt(request.match_info["name"], stop_jobs, by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def present_key(self, request: web.Request) -> web.Response:
        keys = await _settled(self.service.present_key(request.match_info["name"]))
        return respond_as(hosts.HostKeys, keys)

    async def accept_key(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read())
        wire.fields(body, "fingerprint")
        fingerprint = body.get("fingerprint")
        if not isinstance(fingerprint, str) or not fingerprint:
            raise UsageError("'fingerprint' must be the fingerprint of the key to accept.")
        keys = await _settled(self.service.accept_key(request.match_info["name"], fingerprint, by))
        return respond_as(hosts.HostKeys, keys)

    async def links(self, request: web.Request) -> web.Response:
        shown = (await self.sight(request)).links(await _settled(self.service.links()))
        return respond_as(network.Links, {"links": shown})

    async def network(self, request: web.Request) -> web.Response:
        return respond_as(network.Pairs, {"pairs": await _settled(self.service.network())})

    async def measure(self, request: web.Request) -> web.Response:
        body = wire.decode(await request.read())
        wire.fields(body, "zone")
        zone = body.get("zone")
        if zone is not None and not isinstance(zone, str):
            raise UsageError("'zone' must be the name of a zone, or null for all.")
        return respond_as(network.Measured, await _settled(self.service.measure(zone)))

    async def status(self, request: web.Request) -> web.Response:
        told = await _settled(self.service.status())
        return respond_as(daemon.Status, (await self.sight(request)).status(told))
