"""The page's web application: one page, its parts for live updates, and the files it needs."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from rm import __version__
from rm.core.cells import Status
from rm.errors import NotFound, RmError, Unreachable
from rm.web.pages import circle_view, iteration_view, network_view, queue_view, timeline_view, why_view
from rm.web.pages.guard import guarded
from rm.web.pages.passing import passing_routes
from rm.web.pages.source import Source
from rm.web.pages.text import Looks

RUNNING, WAITING, ENDED = "R,CF,S,CG", "PD", "CD,F,CA,TO,NF,PR,OOM"
MEASURED_MOST = 60  # running jobs whose iterations are asked for
STATIC = {
    "htmx.min.js": "text/javascript",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
    "htmx.LICENSE.txt": "text/plain",
}
Fields = dict[str, Any]


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
    body = files("rm.web").joinpath("static", name).read_bytes()
    return web.Response(
        body=body, content_type=STATIC[name], charset="utf-8", headers={"Cache-Control": "no-cache"}
    )


class _Page:
    """Each part of the page: what it asks of the API, and the fields of its template."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._look = Looks()
        self._templates = Environment(
            loader=PackageLoader("rm.web.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"version": __version__, "statuses": list(Status)}
        self._parts: dict[str, Callable[[Mapping[str, str]], Awaitable[Fields]]] = {
            "status": self._status,
            "jobs": self._jobs,
            "why": self._why,
            "timeline": self._timeline,
            "links": self._links,
            "iterations": self._iterations,
            "network": self._network,
        }

    async def whole(self, request: web.Request) -> web.Response:
        """The page with all parts in it, so that it can be read without scripts, too."""
        query = _query(request)
        filled = await asyncio.gather(*(self._fields(name, query) for name in self._parts))
        html = await asyncio.to_thread(self._page, dict(zip(self._parts, filled, strict=True)), query)
        return web.Response(text=html, content_type="text/html")

    async def part(self, request: web.Request) -> web.Response:
        """One part; nothing if it is what the page has, or while the daemon does not answer."""
        name = request.match_info["name"]
        if name not in self._parts:
            raise web.HTTPNotFound
        fields = await self._fields(name, _query(request))
        if isinstance(fields.get("error"), Unreachable) and name != "status":
            return web.Response(status=204)
        html = await asyncio.to_thread(self._part, name, fields)
        seen = hashlib.blake2b(html.encode(), digest_size=8).hexdigest()
        if request.headers.get("X-Seen") == seen:
            return web.Response(status=204)
        return web.Response(text=html, content_type="text/html", headers={"X-Seen": seen})

    async def _fields(self, name: str, query: Mapping[str, str]) -> Fields:
        try:
            return {"error": None, **await self._parts[name](query)}
        except RmError as error:
            return {"error": error}

    def _page(self, parts: Mapping[str, Fields], query: Mapping[str, str]) -> str:
        drawn = {name: self._part(name, fields) for name, fields in parts.items()}
        page = self._templates.get_template("page.html")
        return page.render(parts=drawn, query=urlencode(query))

    def _part(self, name: str, fields: Fields) -> str:
        return self._templates.get_template(f"{name}.html").render(now_us=_now_us(), **fields)

    # -- the parts -------------------------------------------------------------------------------

    async def _status(self, _: Mapping[str, str]) -> Fields:
        return {"status": await self._source.get("status")}

    async def _groups(self) -> list[list[Mapping[str, Any]]]:
        most = queue_view.MOST
        answers = await asyncio.gather(
            *(self._source.get(f"jobs?state={s}&limit={most}") for s in (RUNNING, WAITING, ENDED))
        )
        groups = [answer["jobs"] for answer in answers]
        self._look.see(job["id"] for job in groups[0])
        return groups

    async def _jobs(self, query: Mapping[str, str]) -> Fields:
        groups, status = await asyncio.gather(self._groups(), self._source.get("status"))
        jobs = [job for group in groups for job in group]
        drawn = queue_view.queue(jobs, status["jobs"], _now_us(), self._look)
        return {"groups": drawn, "chosen": query.get("job", "")}

    async def _why(self, query: Mapping[str, str]) -> Fields:
        """Of the job that was chosen, else of the first that waits or runs."""
        running, waiting, ended = await self._groups()
        chosen = query.get("job", "")
        jobs = [*waiting, *running, *ended]
        if chosen:
            job = next((j for j in jobs if str(j["id"]) == chosen), None)
            if job is None:
                job = (await self._source.get(f"jobs/{chosen}"))["job"]
        elif not jobs:
            return {"why": None}
        else:
            job = jobs[0]
        answer = await self._source.get(f"jobs/{job['id']}/why")
        return {"why": why_view.why(job, answer, _now_us(), self._look)}

    async def _timeline(self, _: Mapping[str, str]) -> Fields:
        running, _waiting, ended = await self._groups()
        remaining = {j["id"]: j["progress"]["remaining_us"] for j in running if j.get("progress")}
        return {"timeline": timeline_view.timeline([*running, *ended], remaining, _now_us(), self._look)}

    async def _measured(self) -> tuple[list[Mapping[str, Any]], dict[int, Fields]]:
        """The running jobs, and their newest iterations."""
        running, _waiting, _ended = await self._groups()
        asked = running[:MEASURED_MOST]
        answers = await asyncio.gather(
            *(self._source.get(f"jobs/{j['id']}/iterations?last={iteration_view.LAST}") for j in asked),
            return_exceptions=True,
        )
        told = {j["id"]: a for j, a in zip(asked, answers, strict=True) if isinstance(a, dict)}
        return running, told

    async def _links(self, _: Mapping[str, str]) -> Fields:
        (running, told), answer = await asyncio.gather(self._measured(), self._source.get("links"))
        names = {job["id"]: job["spec"]["name"] for job in running}
        return {"links": circle_view.links(answer["links"], names, told, self._look)}

    async def _iterations(self, _: Mapping[str, str]) -> Fields:
        running, told = await self._measured()
        return {"charts": iteration_view.charts(running, told, self._look)}

    async def _network(self, query: Mapping[str, str]) -> Fields:
        hosts, network, cells = await asyncio.gather(
            self._source.get("hosts"), self._source.get("network"), self._cells()
        )
        zones, across = network_view.zones(hosts["hosts"], network["pairs"], cells, query.get("zone", ""))
        return {"zones": zones, "across": across, "job": query.get("job", "")}

    async def _cells(self) -> network_view.Cells:
        """The statuses of all meshes; none from a daemon that has no meshes."""
        try:
            meshes = (await self._source.get("monitor"))["meshes"]
            answers = [await self._source.get(f"monitor/{mesh['name']}") for mesh in meshes]
        except (NotFound, KeyError):
            return {}
        except RmError as error:
            if isinstance(error, Unreachable):
                raise
            return {}
        return network_view.worst_of(cell for answer in answers for cell in answer["cells"])


def _now_us() -> int:
    return time.time_ns() // 1_000


def _query(request: web.Request) -> dict[str, str]:
    """What the page was asked for: `job`, a number, and `zone`, both checked."""
    found = {}
    job, zone = request.query.get("job", ""), request.query.get("zone", "")
    if job.isascii() and job.isdigit() and len(job) < 19:
        found["job"] = job
    if zone:
        found["zone"] = zone
    return found
