"""The HTTP API of monitoring: meshes, grids, histories. The contract is docs/http-api.md."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from aiohttp import web

from rm.api import monitoring, network
from rm.errors import UsageError
from rm.web import wire
from rm.web.answers import respond_as
from rm.web.callers.identity import CALLER
from rm.web.handling import monitoring_of, number
from rm.web.ports import Monitoring, Service

DAY_S = 86_400.0
CHANGES_S = 7 * DAY_S
CHANGES_MOST = 10_000


class MonitorRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _monitoring(self) -> Monitoring:
        return monitoring_of(self._service)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/monitor", self.meshes),
            web.get("/v1/monitor/{mesh}", self.grid),
            web.get("/v1/monitor/{mesh}/changes", self.changes),
            web.post("/v1/monitor/{mesh}/run", self.run),
            web.post("/v1/monitor/{mesh}/pause", self.pause),
            web.post("/v1/monitor/{mesh}/resume", self.resume),
            web.get("/v1/network/history", self.history),
            web.get("/v1/sources", self.sources),
            web.get("/v1/archives", self.archives),
            web.post("/v1/sources/{name}/read", self.read_source),
        ]

    async def meshes(self, request: web.Request) -> web.Response:
        return respond_as(monitoring.Meshes, await self._monitoring.meshes())

    async def grid(self, request: web.Request) -> web.Response:
        return respond_as(monitoring.Grid, await self._monitoring.grid(request.match_info["mesh"]))

    async def changes(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "check", "source", "destination", "since_s", "limit")
        check, source, destination = (request.query.get(n, "") for n in ("check", "source", "destination"))
        span_us = int(number(request, "since_s", CHANGES_S) * 1e6)
        limit = int(number(request, "limit", CHANGES_MOST))
        name = request.match_info["mesh"]
        most = max(1, min(limit, CHANGES_MOST))
        told = await self._monitoring.changes(name, check, source, destination, span_us, most)
        return respond_as(monitoring.Changes, told)

    async def history(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "source", "destination", "since_s")
        source, destination = (request.query.get(n, "") for n in ("source", "destination"))
        if not source or not destination:
            raise UsageError("Name the 'source' and the 'destination' of the history.")
        span_us = int(number(request, "since_s", DAY_S) * 1e6)
        return respond_as(network.History, await self._monitoring.history(source, destination, span_us))

    async def run(self, request: web.Request) -> web.Response:
        body = wire.decode(await request.read())
        wire.fields(body, "all")
        if not isinstance(body.get("all", False), bool):
            raise UsageError("'all' must be true or false.")
        mesh = request.match_info["mesh"]
        return await self._state(self._monitoring.run(mesh, body.get("all", False)))

    async def pause(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        return await self._state(self._monitoring.pause(request.match_info["mesh"], by))

    async def resume(self, request: web.Request) -> web.Response:
        return await self._state(self._monitoring.resume(request.match_info["mesh"]))

    async def sources(self, request: web.Request) -> web.Response:
        return respond_as(monitoring.Sources, await self._monitoring.sources())

    async def archives(self, request: web.Request) -> web.Response:
        return respond_as(monitoring.Archives, await self._monitoring.archives())

    async def read_source(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return respond_as(monitoring.OneSource, {"source": await self._monitoring.read_source(name)})

    async def _state(self, state: Awaitable[Mapping[str, Any]]) -> web.Response:
        return respond_as(monitoring.OneMesh, {"mesh": await state})
