"""`/v1/usage`: what jobs used, added up. The contract is docs/http-api.md."""

from __future__ import annotations

from aiohttp import web

from rm.api.usage import Usage, UsageLine
from rm.core.sharing.usage_query import NAMES
from rm.web import wire
from rm.web.answers import respond
from rm.web.handling import number, settled
from rm.web.ports import Service

ONLY = (*NAMES, "host")


class UsageRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/usage", self.usage)]

    async def usage(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "by", "since_us", "until_us", *ONLY)
        by = [word for word in request.query.get("by", "").split(",") if word]
        since_us, until_us = (int(number(request, name, 0)) for name in ("since_us", "until_us"))
        only = [(name, request.query[name]) for name in ONLY if name in request.query]
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
            for heap, sums in found
        ]
        return respond(Usage(since_us=asked.since_us, until_us=asked.until_us, by=asked.by, lines=lines))
