"""What the page's port passes on from the daemon as it is: answers for programs, not for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from rm.errors import Unreachable
from rm.web.pages.login import PERSON
from rm.web.pages.source import Source

PASSED = ("Accept",)


def passing_routes(source: Source) -> list[web.RouteDef]:
    """`/metrics` for Prometheus, and MaDDash's REST API: a Unix socket is out of their reach."""
    handler = _passing(source)
    return [web.get("/metrics", handler), web.get("/maddash/{rest:.*}", handler)]


def _passing(source: Source) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        headers = {name: request.headers[name] for name in PASSED if name in request.headers}
        try:
            status, kind, body = await source.at(request[PERSON].door).raw(request.raw_path, headers)
        except Unreachable as error:
            return web.Response(status=error.http_status, text=f"{error}\n")
        return web.Response(status=status, body=body, headers={"Content-Type": kind})

    return handle
