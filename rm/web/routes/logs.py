"""`GET /v1/jobs/{id}/logs`: a task's output, while it runs if wished. The contract is docs/http-api.md."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from urllib.parse import quote

from aiohttp import web

from rm.core.model.logs import LogPiece
from rm.core.people.rights import Role
from rm.errors import Conflict, RmError, UsageError
from rm.web.callers.access import Gate
from rm.web.callers.identity import Doorkeeper
from rm.web.callers.visible_jobs import VisibleJobs, array_tasks_of
from rm.web.handling import number, settled, while_connected
from rm.web.ports import Service
from rm.web.routes.lasting import until_not_let

log = logging.getLogger("rm.web")

SIGN_OF_LIFE_S = 10.0  # to who follows a log by its pieces, and nothing comes


class LogRoutes:
    """`gate` records what administrators read of others, `keeper` knows whether who follows one still may."""

    def __init__(self, service: Service, gate: Gate, keeper: Doorkeeper, visible: VisibleJobs) -> None:
        self._service = service
        self._keeper = keeper
        self._gate = gate
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [web.get(r"/v1/jobs/{id:\d{1,18}}/logs", self.logs)]

    async def logs(self, request: web.Request) -> web.StreamResponse:
        job_id, caller = await self._visible.owned(request, Role.ADMIN)
        if caller.admin and (await settled(self._service.reading.job(job_id))).spec.user != caller.user:
            await self._gate.read_of_others(request)
        if array_tasks := array_tasks_of(request):
            job = (await settled(self._service.reading.described(job_id, array_tasks))).job
            if job.id == job.array_job:  # it has no job of its own
                raise Conflict(f"Job {job.ref} has not begun, and has no output.")
            job_id = job.id
        stream = request.query.get("stream", "out")
        if stream not in ("out", "err"):
            raise UsageError(f"There is no stream '{stream}'.", "Use out or err.")
        rank, offset = int(number(request, "task", 0)), int(number(request, "offset", 0))
        tail, lines = int(number(request, "tail", 0)), int(number(request, "lines", 0))
        if sum(map(bool, (tail, lines, offset))) > 1:
            raise UsageError("'offset', 'tail' and 'lines' are mutually exclusive.")
        offset = -tail or offset
        attempt = int(number(request, "attempt", 0))
        follow = request.query.get("follow", "") not in ("", "0")
        from_attempt = int(number(request, "from_attempt", 0))
        if from_attempt and (attempt or not follow):
            raise UsageError("'from_attempt' is for 'follow', without 'attempt'.")
        by_pieces = request.query.get("pieces", "") not in ("", "0")
        pieces = self._service.job_logs.read(
            job_id, rank, stream, offset, follow, lines, attempt, from_attempt
        )
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        # the first piece before the headers: a job without logs is an error, not an empty log
        first = await while_connected(request, _next(pieces))
        if note := await settled(self._service.job_logs.note(job_id, rank, stream, attempt)):
            response.headers["Rm-Note"] = quote(note, safe=" '(),/:;")
        await response.prepare(request)

        async def rest(piece: LogPiece | None) -> None:
            while piece is not None:
                if piece.data:
                    await response.write(_marked(piece) if by_pieces else piece.data)
                coming = asyncio.ensure_future(while_connected(request, _next(pieces)))
                try:
                    while by_pieces and not (await asyncio.wait({coming}, timeout=SIGN_OF_LIFE_S))[0]:
                        await response.write(_marked(LogPiece(piece.attempt, 0, b"")))
                    piece = await coming
                finally:
                    coming.cancel()
            await response.write_eof()

        await self._as_long_as_let(request, rest(first))
        return response

    async def _as_long_as_let(self, request: web.Request, sending: Coroutine[Any, Any, None]) -> None:
        """Who may not read it any more gets no end of it either, so that it looks like no whole log."""
        sent = asyncio.ensure_future(sending)
        lets = asyncio.ensure_future(until_not_let(request, self._keeper))
        try:
            await asyncio.wait({sent, lets}, return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                sent.result()
            else:
                if not isinstance(lets.exception(), RmError):
                    log.error("who follows a log could not be known again", exc_info=lets.exception())
                if request.transport is not None:
                    request.transport.abort()
        finally:
            for task in (sent, lets):
                task.cancel()
            await asyncio.gather(sent, lets, return_exceptions=True)


async def _next(pieces: AsyncIterator[LogPiece]) -> LogPiece | None:
    return await anext(pieces, None)


def _marked(piece: LogPiece) -> bytes:
    return b"%d %d %d\n%b" % (piece.attempt, piece.offset, len(piece.data), piece.data)
