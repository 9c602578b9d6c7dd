"""The one gate of the API: who calls, whether the route is for them, and the audit log.

The rights are the table's (`rm.api.routes`): each route has a role, and a route that is not in it is
for nobody. What changes something, what is refused and what administrators read of others is recorded, with
the change where there is one, else before the answer.

A handler finds the caller as `request[CALLER]` (rm.web.callers.identity).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rm.adapters.asker import ASKER
from rm.adapters.store.audit_scope import deed
from rm.api.routes import ROUTES, Route, Who
from rm.config import PrivacyConfig
from rm.core.people.audit import Act, Outcome, clean
from rm.core.people.rights import Role, Scope, most
from rm.core.people.token import id_of
from rm.errors import Forbidden, LimitReached, RmError
from rm.web.callers.identity import CALLER, Caller, Doorkeeper, bearer_of, caller_of, door_of, origin_of
from rm.web.callers.shares import source_of
from rm.web.ports import Service

FAILURES, WITHIN_S = 10, 60.0  # wrong tokens of one source that are recorded
ANSWERED, REFUSE_S = 60, 1.0  # that are answered at once within the same time, and when others are
REFUSALS = 60  # of one known user that are, within the same time
SOURCES_MOST = 10_000
BEGUN = frozenset(
    {"run_steps", "measure", "run_mesh", "read_source", "session"}
)  # they take long: recorded at once
DOES = frozenset({"session"})  # it runs a program, although a WebSocket begins with GET
SINGULAR = {"qos": "qos"}  # what is more than an s less than the word of the path
NO_ACTS = frozenset({"plan", "tell_progress"})  # it changes nothing; it belongs to an act, `tell_playbook`
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LEAST = {
    Who.ANYBODY: Role.NOBODY, Who.USER: Role.USER, Who.OWNER: Role.USER, Who.READER: Role.USER,
    Who.OPERATOR: Role.OPERATOR, Who.ADMIN: Role.ADMIN,
}  # fmt: skip
A_ROLE = {Role.USER: "a user", Role.OPERATOR: "an operator", Role.ADMIN: "an administrator"}
log = logging.getLogger("rm.web")


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs: a role, and a token's scope."""

    role: Role
    scope: Scope
    changes: bool


def need_of(route: Route, privacy: PrivacyConfig, playbooks: Role = Role.OPERATOR) -> Need:
    """`playbooks` may start some."""
    changes = (route.method not in SAFE and route.name not in NO_ACTS) or route.name in DOES
    role = LEAST.get(route.who, playbooks)
    if route.who is Who.PROGRAMS:
        role = Role(privacy.metrics)
    if any(getattr(privacy, switch) for switch in route.private):
        role = most(role, Role.OPERATOR)
    if role is Role.ADMIN and route.who is Who.ADMIN:
        scope = Scope.ADMIN
    elif route.who in (Who.OPERATOR, Who.PLAYBOOKS):
        scope = Scope.OPERATE
    else:
        scope = Scope.SUBMIT if changes else Scope.READ
    return Need(role, scope, changes)


def check(caller: Caller, route: Route, need: Need) -> None:
    """Raises Forbidden when the route is not for this caller."""
    what = route.name.replace("_", " ") if need.changes else f"see this ({route.name})"
    if need.role is not Role.NOBODY or need.changes:
        caller.must_be_somebody()
    if caller.scope.rank < need.scope.rank:
        if caller.of_job:
            raise Forbidden(
                f"A program of a job has the scope {caller.scope}, and to {what} needs {need.scope}.",
                "Ask from outside the job; for programs of jobs rm.toml says what they may (jobs.clients).",
            )
        raise Forbidden(
            f"This token has the scope {caller.scope}, and to {what} needs the scope {need.scope}.",
            f"Make another: rmx token create --scope {need.scope}.",
        )
    if not caller.role >= need.role:
        raise Forbidden(
            f"Only {A_ROLE[need.role]} may {what}, and {caller.user} is none.",
            "Administrators are root, the user who runs the daemon and those that rm.toml names (roles, "
            "daemon.admins).",
        )


class Gate:
    """`routes` by the web's own names of them, so that one that the table lacks is closed."""

    def __init__(
        self,
        keeper: Doorkeeper,
        privacy: PrivacyConfig,
        service: Service,
        playbooks: Role = Role.OPERATOR,
    ) -> None:
        self._keeper = keeper
        self._service = service
        self._routes = {(route.method, _bare(route.path)): route for route in ROUTES}
        self._needs = {route.name: need_of(route, privacy, playbooks) for route in ROUTES}
        self._found: dict[tuple[str, str, str], Route | None] = {}
        self._failures: dict[str, list[float]] = {}

    def identifying(self) -> Middleware:
        """Says who calls, before anything is counted for them."""

        @web.middleware
        async def identify(request: web.Request, handler: Handler) -> web.StreamResponse:
            route = self._route(request)
            if route is not None or request.secure:
                request[CALLER] = await self._known(request, route)
            return await handler(request)

        return identify

    def middleware(self) -> Middleware:
        """Lets the callers of a route's role pass."""

        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            route = self._route(request)
            if route is not None:
                caller = request[CALLER]
                ASKER.set(caller.user or asker_of(caller.origin))
                return await self._pass(request, handler, caller, route)
            if request.match_info.http_exception is None:  # registered, yet not in the table
                raise Forbidden("This route is for nobody.")
            return await handler(request)

        return gate

    def _route(self, request: web.Request) -> Route | None:
        resource = request.match_info.route.resource
        if resource is None:
            return None
        verb = request.match_info.get("verb", "")  # one handler of several routes
        key = (request.method, resource.canonical, verb)
        if key not in self._found:
            method = "GET" if request.method == "HEAD" else request.method
            self._found[key] = self._routes.get((method, _bare(resource.canonical.replace("{verb}", verb))))
        return self._found[key]

    async def _known(self, request: web.Request, route: Route | None) -> Caller:
        try:
            return await caller_of(request, self._keeper)
        except RmError as error:
            await self._refused_at_the_door(request, route, error)
            if not self._too_often(f"door {asker_of(origin_of(request))}", ANSWERED):
                raise
            await asyncio.sleep(REFUSE_S)  # one connection gets no more than an answer a second
            raise LimitReached(
                f"{error.what} {ANSWERED} requests from your address were refused like this within a minute.",
                error.hint,
                WITHIN_S,
            ) from None

    async def _pass(
        self, request: web.Request, handler: Handler, caller: Caller, route: Route
    ) -> web.StreamResponse:
        need = self._needs[route.name]
        if not need.changes and route.who is not Who.ADMIN:
            return await self._read(request, handler, caller, route, need)
        act = _act(request, caller, route)
        with deed(act) as done:
            try:
                check(caller, route, need)
                if route.name in BEGUN or not need.changes:
                    done.recorded = True
                    # durable before anything is done: what follows may end the daemon, or never end
                    await self._record(replace(act, outcome=Outcome.BEGUN if need.changes else Outcome.DONE))
                answer = await handler(request)
            except RmError as error:
                outcome = Outcome.FAILED if error.http_status >= 500 else Outcome.REFUSED
                await self._refused(done.act.ended(outcome, _told(error)))
                raise
            except Exception as error:
                if not done.recorded:
                    await self._record(done.act.ended(Outcome.FAILED, type(error).__name__))
                raise
            if not done.recorded:
                await self._record(done.act)
            return answer

    async def _read(
        self, request: web.Request, handler: Handler, caller: Caller, route: Route, need: Need
    ) -> web.StreamResponse:
        try:
            check(caller, route, need)
            return await handler(request)
        except Forbidden as error:
            await self._refused(_act(request, caller, route).ended(Outcome.REFUSED, _told(error)))
            raise

    async def read_of_others(self, request: web.Request) -> None:
        """To be awaited before an answer shows an administrator what is another user's own."""
        route = self._route(request)
        assert route is not None
        await self._record(_act(request, request[CALLER], route))

    async def _refused_at_the_door(self, request: web.Request, route: Route | None, error: RmError) -> None:
        """Of the failures of one address only the first in a while are written down: the log must not be
        filled by somebody who has no right to anything."""
        origin = origin_of(request)
        if self._too_often(asker_of(origin), FAILURES):
            return
        named = id_of(bearer_of(request) or "") or ""
        via = "https" if request.secure else "unix"
        verb = route.name if route is not None else "unknown"
        log.warning("a request from %s was refused: %s", origin, error.what)
        act = Act(time.time_ns() // 1000, "", -1, Role.NOBODY, via, clean(origin), verb, token=clean(named))
        await self._record(act.ended(Outcome.REFUSED, _told(error)))

    def _too_often(self, source: str, most: int) -> bool:
        now_s = time.monotonic()
        if len(self._failures) >= SOURCES_MOST:
            self._failures.clear()
        recent = [s for s in self._failures.get(source, ()) if now_s - s < WITHIN_S]
        self._failures[source] = recent
        if len(recent) >= most:
            return True
        recent.append(now_s)
        return False

    async def _refused(self, act: Act) -> None:
        """Of what one user is refused, the first in a while: each row is a commit that all wait for."""
        if not self._too_often(f"user {act.user}", REFUSALS):
            await self._record(act)

    async def _record(self, act: Act) -> None:
        auditing = self._service.audit
        if auditing is not None:
            await auditing.record(act)


def _act(request: web.Request, caller: Caller, route: Route) -> Act:
    return Act(
        time.time_ns() // 1000, caller.user, caller.uid, caller.role, clean(door_of(request, caller)),
        clean(caller.origin), route.name, clean(_target(route, request.match_info)), caller.token,
    )  # fmt: skip


def asker_of(origin: str) -> str:
    """Who counts as one: a user of this machine with all processes, or a stranger."""
    return source_of(origin.partition(" pid ")[0])


def _told(error: RmError) -> str:
    return clean(f"{type(error).__name__}: {error.what}")


def _bare(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def _target(route: Route, named: Mapping[str, str]) -> str:
    """What a path names: `job 7`, `host z1h1`."""
    if not named:
        return ""
    found = []
    parts = route.path.split("/")
    for before, part in itertools.pairwise(parts):
        if part.startswith("{"):
            name = part[1:-1]
            kind = SINGULAR.get(before, before.removesuffix("s")) if name in ("id", "name") else name
            found.append(f"{kind} {named.get(name, '')}")
    return " ".join(found)
