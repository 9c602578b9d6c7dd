"""`/v1/links` and `/v1/network`: what jobs share, and what was measured. The contract is docs/http-api.md."""

from __future__ import annotations

from aiohttp import web

from rm.api import network
from rm.errors import UsageError
from rm.web import wire
from rm.web.answers import respond_as
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import settled
from rm.web.ports import Service


class NetworkRoutes:
    def __init__(self, service: Service, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/links", self.links),
            web.get("/v1/network", self.network),
            web.post("/v1/network/measure", self.measure),
        ]

    async def links(self, request: web.Request) -> web.Response:
        shown = (await self._visible.sight(request)).links(
            await settled(self._service.network_service.links())
        )
        return respond_as(network.Links, {"links": shown})

    async def network(self, request: web.Request) -> web.Response:
        return respond_as(network.Pairs, {"pairs": await settled(self._service.network_service.pairs())})

    async def measure(self, request: web.Request) -> web.Response:
        body = wire.decode(await request.read())
        wire.fields(body, "zone")
        zone = body.get("zone")
        if zone is not None and not isinstance(zone, str):
            raise UsageError("'zone' must be the name of a zone, or null for all.")
        return respond_as(network.Measured, await settled(self._service.network_service.measure(zone)))
