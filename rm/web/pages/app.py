"""The page's web application: one page, its parts for live updates, and the files it needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from aiohttp import ETag, web

from rm.errors import Unreachable
from rm.web.etag import etag_of, is_known
from rm.web.pages.acts import Acts
from rm.web.pages.find_page import FindPage
from rm.web.pages.forms import FIELDS_MOST, FORM_MOST
from rm.web.pages.frame import Frame
from rm.web.pages.guard import add_headers, guarded
from rm.web.pages.job_page import JobPage
from rm.web.pages.login import PERSON, Login
from rm.web.pages.pair_view import SPANS_S
from rm.web.pages.parts import ALL_PARTS, PAGE_PARTS, SLOW_S, Parts
from rm.web.pages.passing import passing_routes
from rm.web.pages.people import Person, Sessions
from rm.web.pages.playbook_page import PlaybookPage
from rm.web.pages.playbook_view import STATUSES
from rm.web.pages.settings import PageSettings
from rm.web.pages.source import FRESH_S, Shared, Source
from rm.web.pages.submit_page import SubmitPage
from rm.web.pages.text import Looks
from rm.web.pages.usage_page import UsagePage

STATIC = {
    "htmx.min.js": "text/javascript",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
    "htmx.LICENSE.txt": "text/plain",
}
KEPT = 256  # drawn parts
FRESH_PARTS_S = {"network": SLOW_S, "pair": SLOW_S}  # what is drawn of answers that are kept longer
COMPRESSED_FROM = 8_192  # bytes
NAME_MOST = 255  # characters of a name in a query
Drawn = tuple[int, str]  # status, HTML


def make_page(source: Source, settings: PageSettings) -> web.Application:
    """The application; `settings.names` are those under which it may be called, besides addresses."""
    sessions = Sessions(settings.session_s)
    frame = Frame(sessions)
    login = Login(source, settings, sessions, frame)
    names = frozenset(name.lower() for name in settings.names)
    app = web.Application(
        middlewares=[guarded(names), login.middleware()],
        client_max_size=FORM_MOST,
        client_max_fields=FIELDS_MOST,
    )
    page = _Page(source, frame)
    app.add_routes(
        [
            web.get("/", page.whole),
            web.get(r"/part/{name:[a-z]+}", page.part),
            web.get(r"/static/{name}", static),
            web.get("/favicon.ico", icon),  # of what is shown as text
            *login.routes(),
            *Acts(source, sessions, frame, page.forget).routes(),
            *JobPage(source, frame, page.part_of).routes(),
            *PlaybookPage(source, sessions, frame, page.part_of).routes(),
            *SubmitPage(source, sessions, frame).routes(),
            *UsagePage(source, frame).routes(),
            *FindPage(source, frame).routes(),
            *passing_routes(source),
        ]
    )

    app.on_response_prepare.append(add_headers)

    async def close(_: web.Application) -> None:
        await source.close()

    app.on_cleanup.append(close)
    return app


async def static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound
    return _answer(request, _static(name), STATIC[name])


async def icon(request: web.Request) -> web.Response:
    return _answer(request, _static("icon.svg"), STATIC["icon.svg"])


@cache
def _static(name: str) -> bytes:
    return files("rm.web").joinpath("static", name).read_bytes()


def _answer(request: web.Request, body: bytes, kind: str, kept: str = "no-cache") -> web.Response:
    """With the body's ETag; 304 without a body to a client that has it."""
    etag = etag_of(body)
    same = is_known(request, etag)
    response = (
        web.Response(status=304) if same else web.Response(body=body, content_type=kind, charset="utf-8")
    )
    response.etag = ETag(etag, is_weak=True)
    if len(body) > COMPRESSED_FROM and not same:  # through SSH it counts
        response.enable_compression()
    response.headers["Cache-Control"] = kept
    return response


class _Page:
    """The parts, drawn. What is drawn for a person serves them whenever they ask for the same within a
    moment; all anonymous visitors are one person."""

    def __init__(self, source: Source, frame: Frame) -> None:
        self._source = source
        self._frame = frame
        self._looks = Looks()
        self._drawn: Shared[Drawn] = Shared(FRESH_S, KEPT)

    async def whole(self, request: web.Request) -> web.Response:
        """The page with all parts in it, so that it can be read without scripts, too."""
        query, person = _query(request), request[PERSON]
        drawn = await asyncio.gather(*(self.part_of(name, query, person) for name in PAGE_PARTS))
        parts = {name: html for name, (_, html) in zip(PAGE_PARTS, drawn, strict=True)}
        return self._frame.page("page.html", person, {"parts": parts, "query": urlencode(query)})

    async def part(self, request: web.Request) -> web.Response:
        """One part; 304 if it is what the page has, 204 while there is nothing to replace it with."""
        name = request.match_info["name"]
        if name not in ALL_PARTS:
            raise web.HTTPNotFound
        status, html = await self.part_of(name, _query(request), request[PERSON])
        if status == 204:
            return web.Response(status=204)
        return _answer(request, html.encode(), "text/html", "private, no-cache")

    async def part_of(self, name: str, query: Mapping[str, str], person: Person) -> Drawn:
        async def draw() -> Drawn:
            now_us = time.time_ns() // 1_000
            parts = Parts(self._source.at(person.door), person, self._looks)
            fields = await parts.fields(name, query, now_us)
            silent = isinstance(fields.get("error"), Unreachable) and name != "status"
            return (204 if silent else 200), await asyncio.to_thread(
                self._render, name, person, fields, now_us
            )

        key = f"{person.door.key}\n{name}?{urlencode(query)}"
        return await self._drawn.get(key, draw, FRESH_PARTS_S.get(name))

    def forget(self, key: str) -> None:
        """Forgets what was drawn for the person with this door's key: they have just changed something."""
        self._drawn.forget(f"{key}\n")

    def _render(self, name: str, person: Person, fields: Mapping[str, Any], now_us: int) -> str:
        return self._frame.draw(f"{name}.html", person, {"now_us": now_us, **fields})


CHECKED: Mapping[str, Callable[[str], bool]] = {
    "job": lambda text: text.isascii() and text.isdigit() and len(text) < 19,
    "user": lambda text: len(text) <= NAME_MOST,
    "zone": lambda text: len(text) <= NAME_MOST,
    "from": lambda text: len(text) <= NAME_MOST,
    "to": lambda text: len(text) <= NAME_MOST,
    "since": SPANS_S.__contains__,
    "run": lambda text: text.isascii() and text.isdigit() and len(text) < 19,
    "host": lambda text: len(text) <= NAME_MOST,
    "status": STATUSES.__contains__,
    "after": lambda text: text.isascii() and text.isdigit() and len(text) < 16,
}


def _query(request: web.Request) -> dict[str, str]:
    """What the page was asked for, without what makes no sense."""
    asked = {name: request.query.get(name, "") for name in CHECKED}
    return {name: text for name, text in asked.items() if text and CHECKED[name](text)}
