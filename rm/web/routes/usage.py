"""`/v1/usage`: what jobs used, added up. The contract is docs/http-api.md."""

from __future__ import annotations

from aiohttp import web

from rm.api.usage import Usage, UsageLine
from rm.core.sharing.usage_query import NAMES
from rm.web import wire
from rm.web.answers import respond
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import number, settled
from rm.web.ports import Service

ONLY = (*NAMES, "host")


class UsageRoutes:
    def __init__(self, service: Service, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/usage", self.usage)]

    async def usage(self, request: web.Request) -> web.Response:
        """Where jobs are private, of users only what the caller's own used."""
        wire.fields(request.query, "by", "since_us", "until_us", *ONLY)
        by = [word for word in request.query.get("by", "").split(",") if word]
        since_us, until_us = (int(number(request, name, 0)) for name in ("since_us", "until_us"))
        only = [(name, request.query[name]) for name in ONLY if name in request.query and name != "user"]
        user: str | None = ""
        if "user" in by or "user" in request.query:
            user = self._visible.whose(request[CALLER], request.query.get("user", ""))
            if user or (user is not None and "user" in request.query):
                only.append(("user", user))
        asked, found = await settled(self._service.usage_service.usage(by, since_us, until_us, only))
        lines = [
            UsageLine(
                account=heap.account,
                user=heap.user,
                qos=heap.qos,
                partition=heap.partition,
                host=heap.host,
                day_us=heap.start_us,
                **sums._asdict(),
            )
            for heap, sums in (found if user is not None else ())
        ]
        return respond(Usage(since_us=asked.since_us, until_us=asked.until_us, by=asked.by, lines=lines))
