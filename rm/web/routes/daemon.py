"""`/v1/status`, `/v1/me` and `/v1/openapi.json`: the daemon, its caller, its API. The contract is
docs/http-api.md."""

from __future__ import annotations

from aiohttp import web

from rm import __version__
from rm.api import people, status
from rm.api.openapi import document
from rm.config import Config
from rm.web.answers import respond, respond_as
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import settled
from rm.web.ports import Service


class DaemonRoutes:
    def __init__(self, service: Service, config: Config, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible
        jobs = config.jobs
        self._settings = status.Settings(
            cluster_name=jobs.cluster_name,
            partition=jobs.partition,
            array_size=config.limits.array_size,
            recent_s=jobs.recent_s,
            keep_days=jobs.keep_days,
            keep_finished=jobs.keep_finished,
        )

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/status", self.status),
            web.get("/v1/me", self.me),
            web.get("/v1/openapi.json", self.openapi),
        ]

    async def status(self, request: web.Request) -> web.Response:
        told = await settled(self._service.daemon_status.status())
        seen = (await self._visible.sight(request)).status(told)
        return respond_as(status.Status, {**seen, "settings": self._settings})

    async def me(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        return respond(people.Me(user=caller.user, role=caller.role.value))

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=document(__version__), content_type="application/json")
