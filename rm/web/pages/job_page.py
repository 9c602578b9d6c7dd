"""`/job/ID`: one job with its script and its log, which is followed while it runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import urlencode

from aiohttp import web

from rm.api.jobs import FullJob, WholeJob
from rm.errors import LimitReached, RmError
from rm.missing_program import NOT_FOUND, missing_program
from rm.web.pages import job_view
from rm.web.pages.frame import Frame
from rm.web.pages.login import PERSON
from rm.web.pages.people import Door, Person
from rm.web.pages.source import Source

TAIL_BYTES = 65_536
END_BYTES = 4_096  # of a log, where a shell says what it did not find
END_S = 2.0  # for which the page waits for it
READ_MOST = 8  # logs at once at one door: the daemon counts all of the page's as one user's
PartOf = Callable[[str, Mapping[str, str], Person], Awaitable[tuple[int, str]]]


class JobPage:
    def __init__(self, source: Source, frame: Frame, part_of: PartOf) -> None:
        self._source = source
        self._frame = frame
        self._part_of = part_of
        self._read: Counter[str] = Counter()  # logs being read, by the key of the door

    def routes(self) -> list[web.RouteDef]:
        return [web.get(r"/job/{id:\d{1,18}}", self.page), web.get(r"/job/{id:\d{1,18}}/log", self.log)]

    async def page(self, request: web.Request) -> web.Response:
        number, person = request.match_info["id"], request[PERSON]
        try:
            told = (await self._source.at(person.door).get(WholeJob, f"jobs/{number}")).job
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        chosen = _chosen(request, job_view.first_failure(told))
        query, readable = {"job": number}, person.may_read(told.spec.user)
        fields = {
            "id": told.id,
            "name": told.spec.name,
            "tasks": told.spec.ntasks,
            "attempts": told.attempt,
            "script": job_view.script(told),
            "readable": readable,
            "missing": await self._missing(told, person.door) if readable else None,
            "chosen": chosen,
            "log": f"/job/{number}/log?{urlencode(chosen)}",
            "job": (await self._part_of("job", query, person))[1],
            "why": (await self._part_of("why", query, person))[1],
            "query": urlencode(query),
        }
        return self._frame.page("job_page.html", person, fields)

    async def _missing(self, told: FullJob, door: Door) -> tuple[str, str] | None:
        """The program that a shell did not find, by the end of the log of the task that failed; its host."""
        rank = job_view.first_failure(told)
        failed = next((task for task in told.tasks if task.rank == rank), None)
        if failed is None or failed.exit_code != NOT_FOUND or self._read[door.key] >= READ_MOST:
            return None
        stream = "err" if told.spec.error else "out"
        path = f"jobs/{told.id}/logs?" + urlencode({"task": rank, "stream": stream, "tail": END_BYTES})
        self._read[door.key] += 1
        try:
            async with asyncio.timeout(END_S), self._source.at(door).stream(path) as chunks:
                end = b"".join([chunk async for chunk in chunks])
        except (RmError, TimeoutError):
            return None  # the log beside it says what keeps it
        finally:
            self._read[door.key] -= 1
            self._read += Counter()
        program = missing_program(job_view.tame(end.decode(errors="replace")).splitlines())
        return (program, failed.host) if program else None

    async def log(self, request: web.Request) -> web.StreamResponse:
        """The log's end; with `follow` what is added, too, until the task ends."""
        door = request[PERSON].door
        if self._read[door.key] >= READ_MOST:
            raise LimitReached(f"You are reading {READ_MOST} logs already.", "Close some of their pages.")
        self._read[door.key] += 1
        try:
            return await self._log(request, door)
        finally:
            self._read[door.key] -= 1
            self._read += Counter()  # without those who read none

    async def _log(self, request: web.Request, door: Door) -> web.StreamResponse:
        asked = {**_chosen(request), "tail": TAIL_BYTES, "follow": request.query.get("follow", "")}
        path = f"jobs/{request.match_info['id']}/logs?{urlencode(asked)}"
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        try:
            async with self._source.at(door).stream(path) as chunks:
                with suppress(ConnectionError):  # who looked has gone; the daemon hears of it
                    await response.prepare(request)
                    await _pass_on(chunks, response)
                    await response.write_eof()
        except RmError:
            if not response.prepared:
                raise
            if request.transport is not None:  # the daemon gave it up: an end would make it look whole
                request.transport.abort()
        return response


async def _pass_on(chunks: AsyncIterator[bytes], response: web.StreamResponse) -> None:
    async for chunk in chunks:
        await response.write(chunk)


def _chosen(request: web.Request, usual_task: int = 0) -> dict[str, str]:
    """Task, stream and attempt of the query, or the usual ones; an attempt of "0" is the newest."""
    stream = request.query.get("stream", "")
    return {
        "task": _number(request, "task") or str(usual_task),
        "stream": stream if stream in ("out", "err") else "out",
        "attempt": _number(request, "attempt") or "0",
    }


def _number(request: web.Request, name: str) -> str:
    """The number that the query has under the name; "" when there is none."""
    text = request.query.get(name, "")
    return text if text.isascii() and text.isdigit() and len(text) < 7 else ""
