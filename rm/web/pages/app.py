"""The page's web application: one page, its parts for live updates, and the files it needs."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from aiohttp import ETag, web
from jinja2 import Environment, PackageLoader, StrictUndefined

from rm import __version__
from rm.core.cells import Status
from rm.errors import Unreachable
from rm.web.pages.guard import guarded
from rm.web.pages.pair_view import SPANS_S
from rm.web.pages.parts import SLOW_S, Parts
from rm.web.pages.passing import passing_routes
from rm.web.pages.source import FRESH_S, Shared, Source

STATIC = {
    "htmx.min.js": "text/javascript",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
    "htmx.LICENSE.txt": "text/plain",
}
KEPT = 64  # drawn parts
FRESH_PARTS_S = {"network": SLOW_S, "pair": SLOW_S}  # what is drawn of answers that are kept longer
COMPRESSED_FROM = 8_192  # bytes
NAME_MOST = 255  # characters of a name in a query
Drawn = tuple[int, str]  # status, HTML


def make_page(source: Source, names: Collection[str]) -> web.Application:
    """The application; `names` are those under which it may be called, besides addresses."""
    app = web.Application(middlewares=[guarded(frozenset(name.lower() for name in names))])
    page = _Page(source)
    app.add_routes(
        [
            web.get("/", page.whole),
            web.get(r"/part/{name:[a-z]+}", page.part),
            web.get(r"/static/{name}", static),
            *passing_routes(source),
        ]
    )

    async def close(_: web.Application) -> None:
        await source.close()

    app.on_cleanup.append(close)
    return app


async def static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound
    return _answer(request, _static(name), STATIC[name])


@cache
def _static(name: str) -> bytes:
    return files("rm.web").joinpath("static", name).read_bytes()


def _answer(request: web.Request, body: bytes, kind: str) -> web.Response:
    """With the body's ETag; 304 without a body to whoever has it."""
    etag = hashlib.blake2b(body, digest_size=8).hexdigest()
    told = request.if_none_match
    same = told is not None and any(tag.value == etag for tag in told)
    response = (
        web.Response(status=304) if same else web.Response(body=body, content_type=kind, charset="utf-8")
    )
    response.etag = ETag(etag, is_weak=True)
    if len(body) > COMPRESSED_FROM and not same:  # through SSH it counts
        response.enable_compression()
    response.headers["Cache-Control"] = "no-cache"
    return response


class _Page:
    """The parts, drawn. What is drawn serves everybody who asks for the same within a moment."""

    def __init__(self, source: Source) -> None:
        self._parts = Parts(source)
        self._drawn: Shared[Drawn] = Shared(FRESH_S, KEPT)
        self._templates = Environment(
            loader=PackageLoader("rm.web.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"version": __version__, "statuses": list(Status)}
        self._templates.filters["query"] = urlencode

    async def whole(self, request: web.Request) -> web.Response:
        """The page with all parts in it, so that it can be read without scripts, too."""
        query = _query(request)
        drawn = await asyncio.gather(*(self._part(name, query) for name in self._parts.names))
        html = self._templates.get_template("page.html").render(
            parts={name: html for name, (_, html) in zip(self._parts.names, drawn, strict=True)},
            query=urlencode(query),
        )
        return web.Response(text=html, content_type="text/html")

    async def part(self, request: web.Request) -> web.Response:
        """One part; 304 if it is what the page has, 204 while there is nothing to replace it with."""
        name = request.match_info["name"]
        if name not in self._parts.names:
            raise web.HTTPNotFound
        status, html = await self._part(name, _query(request))
        if status == 204:
            return web.Response(status=204)
        return _answer(request, html.encode(), "text/html")

    def _part(self, name: str, query: Mapping[str, str]) -> Awaitable[Drawn]:
        async def draw() -> Drawn:
            now_us = time.time_ns() // 1_000
            fields = await self._parts.fields(name, query, now_us)
            silent = isinstance(fields.get("error"), Unreachable) and name != "status"
            return (204 if silent else 200), await asyncio.to_thread(self._render, name, fields, now_us)

        return self._drawn.get(f"{name}?{urlencode(query)}", draw, FRESH_PARTS_S.get(name))

    def _render(self, name: str, fields: Mapping[str, Any], now_us: int) -> str:
        return self._templates.get_template(f"{name}.html").render(now_us=now_us, **fields)


CHECKED: Mapping[str, Callable[[str], bool]] = {
    "job": lambda text: text.isascii() and text.isdigit() and len(text) < 19,
    "user": lambda text: len(text) <= NAME_MOST,
    "zone": lambda text: len(text) <= NAME_MOST,
    "from": lambda text: len(text) <= NAME_MOST,
    "to": lambda text: len(text) <= NAME_MOST,
    "since": SPANS_S.__contains__,
}


def _query(request: web.Request) -> dict[str, str]:
    """What the page was asked for, without what makes no sense."""
    asked = {name: request.query.get(name, "") for name in CHECKED}
    return {name: text for name, text in asked.items() if text and CHECKED[name](text)}
