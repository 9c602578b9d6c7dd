"""Which jobs a caller may know of, and what of each: every handler finds its job here."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast, get_args

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rm.api.job_requests import SignalTo
from rm.api.jobs import OneJob
from rm.arrays import JobId, mask, text_of
from rm.config import PrivacyConfig
from rm.core.model.described import Described
from rm.core.model.job import Job
from rm.core.people.rights import Role
from rm.errors import NotFound, RmError, UsageError
from rm.web.answers import job_of, respond
from rm.web.callers.identity import CALLER, Caller
from rm.web.callers.sight import Sight, is_open, sight_of
from rm.web.handling import settled
from rm.web.ports import Service


def array_tasks_of(request: web.Request) -> str:
    """Which elements of an array the request is about; "" = it names none.

    Raises:
        UsageError: it names no such thing.
    """
    asked = request.query.get("array_tasks", "")
    return text_of(mask(asked)) if asked else ""


def signal_to_of(request: web.Request) -> SignalTo:
    """Whom a signal reaches.

    Raises:
        UsageError: it names no such thing.
    """
    asked = request.query.get("signal_to", "steps")
    known = get_args(SignalTo)
    if asked not in known:
        raise UsageError(f"signal_to is one of {', '.join(known)}, not '{asked}'.")
    return cast(SignalTo, asked)


class VisibleJobs:
    """The jobs of the service, under `[privacy]` of rm.toml."""

    def __init__(self, service: Service, privacy: PrivacyConfig) -> None:
        self._service = service
        self._privacy = privacy

    def whose(self, caller: Caller, user: str) -> str | None:
        """Whose jobs a list may show of those asked for, "" = everybody's; None: nobody's."""
        if not self._privacy.jobs or caller.operates:
            return user
        return caller.user if caller.user and user in ("", caller.user) else None

    def knows(self, caller: Caller) -> Callable[[str], bool]:
        """Of which users' jobs the caller may know."""
        return lambda user: self.whose(caller, user) is not None

    async def job(self, request: web.Request) -> Job:
        """The job of the path, as the caller may see it.

        Raises:
            NotFound: there is none that the caller may know of.
        """
        return (await self.described(request)).job

    async def described(self, request: web.Request) -> Described:
        """The job of the path, as the caller may see it, with what is known beside its record.

        Raises:
            NotFound: there is none that the caller may know of.
        """
        return await self._described(request, array_tasks_of(request))

    async def _described(self, request: web.Request, array_tasks: str) -> Described:
        caller, job_id = request[CALLER], int(request.match_info["id"])
        try:
            found = await settled(self._service.reading.described(job_id, array_tasks))
        except NotFound:
            found = None
        if found is None or self.whose(caller, found.job.spec.user) is None:
            named = JobId(job_id, array_tasks)
            raise NotFound(f"There is no job {named}.", "`rmx queue --all` lists those that you may see.")
        sight = await self.sight(request)
        schedule = sight.schedule(found.schedule)
        return Described(sight.job(found.job), schedule, found.progress, found.partition)

    async def sight(self, request: web.Request) -> Sight:
        """What of others the caller may see."""
        caller = request[CALLER]
        if caller.operates or is_open(self._privacy) or not caller.user:
            return sight_of(self._privacy, caller, ())
        own = self._service.reading.jobs(
            states=frozenset(), user=caller.user, name="", limit=0, everything=False
        )
        return sight_of(self._privacy, caller, {job.id for job in await settled(own)})

    def middleware(self) -> Middleware:
        """No refusal names a job of others that may not be known, unless it was asked for."""

        @web.middleware
        async def nameless(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                return await handler(request)
            except RmError as error:
                if self._privacy.jobs and (caller := request.get(CALLER)) and not caller.operates:
                    sight, asked = await self.sight(request), await _asked(request)
                    error.what, error.hint = sight.text(error.what, asked), sight.text(error.hint, asked)
                raise

        return nameless

    async def changed(self, request: web.Request, job: Job) -> web.Response:
        """The answer to a change: the job as it is now, as the caller may see it."""
        return respond(OneJob(job=job_of((await self.sight(request)).job(job))))

    async def owned(self, request: web.Request, least: Role = Role.OPERATOR) -> tuple[int, Caller]:
        """The id of the job in the path, which must be the caller's unless the role is `least` or above."""
        job_id = int(request.match_info["id"])
        caller = request[CALLER]
        if not caller.role >= least:
            job = (await self._described(request, "")).job  # an array's elements are its user's, too
            caller.must_own(job.spec.user, f"Job {job_id}", least)
        return job_id, caller


async def _asked(request: web.Request) -> str:
    """The request's own words, which are no news to who asks."""
    return f"{request.path_qs} {(await request.read()).decode('utf-8', 'replace')}"
