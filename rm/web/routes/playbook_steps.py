"""The HTTP API for playbook steps over the agents' channels. The contract is docs/http-api.md."""

from __future__ import annotations

from aiohttp import web

from rm.api import channels
from rm.errors import Conflict, UsageError
from rm.web import wire
from rm.web.answers import respond_as
from rm.web.handling import decoded, while_connected
from rm.web.ports import Service, Steps

LINE_BYTES = (8 << 20) - 4096  # an agent takes lines of up to 8 MiB
DOOR = {"host": str, "address": str, "port": int, "login": str}
REQUEST = {"steps": list, "check": bool, "diff": bool, "planned": dict, "failed_task": int}


class StepsRoutes:
    """For administrators: a step does anything as the agent's user."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/channels", self.channels), web.post("/v1/channels/{host}/steps", self.run)]

    def _steps(self) -> Steps:
        found = self._service.steps
        if found is None:
            raise Conflict("This daemon has no agents.")
        return found

    async def channels(self, request: web.Request) -> web.Response:
        return respond_as(channels.Channels, {"channels": self._steps().channels()})

    async def run(self, request: web.Request) -> web.Response:
        body = {**await decoded(request, LINE_BYTES), "host": request.match_info["host"]}
        wire.fields(body, *DOOR, *REQUEST)
        for key, kind in {**DOOR, **REQUEST}.items():
            value = body.get(key)
            if not isinstance(value, kind) and not (key == "failed_task" and value is None):
                raise UsageError(f"'{key}' of the steps must be {kind.__name__}.")
        door = {key: body[key] for key in DOOR}
        asked = {key: body[key] for key in REQUEST if body.get(key) is not None}
        told = await while_connected(request, self._steps().run(door, asked))
        return respond_as(channels.StepsAnswer, told)
