"""`GET /v1/alerts`. The contract is docs/http-api.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from rm.errors import Conflict


class Alerts(Protocol):
    def view(self) -> Mapping[str, Any]:
        """{"alerts", "rules", "channels"}"""
        ...


def alert_routes(
    find: Callable[[], Alerts | None], answer: Callable[[Mapping[str, Any]], web.Response]
) -> list[web.RouteDef]:
    async def alerts(request: web.Request) -> web.Response:
        found = find()
        if found is None:
            raise Conflict("This daemon does not look for alerts.")
        return answer(found.view())

    return [web.get("/v1/alerts", alerts)]
