"""`GET /v1/jobs/{id}/session`: a WebSocket to a session of a job. The contract is docs/http-api.md."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

from aiohttp import WSMsgType, web

from rm.api.sessions import SessionRequest
from rm.core.people.rights import Role
from rm.errors import Conflict, RmError, Unreachable, UsageError
from rm.web import wire
from rm.web.callers.identity import Doorkeeper
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import settled
from rm.web.ports import AttendedSession, Service
from rm.web.routes.lasting import until_not_let

ASKED_S = 20.0
MESSAGE_BYTES = 64 << 10  # of a message either way
SESSION = re.compile(r"[a-z0-9]{8,40}\Z")


class SessionRoutes:
    """For the job's owner, and administrators: the program is the job's user's."""

    def __init__(self, service: Service, keeper: Doorkeeper, visible: VisibleJobs) -> None:
        self._service, self._keeper = service, keeper
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [web.get(r"/v1/jobs/{id:\d{1,18}}/session", self.attend)]

    async def attend(self, request: web.Request) -> web.StreamResponse:
        job_id, caller = await self._visible.owned(request, Role.ADMIN)
        sessions = self._service.sessions
        if sessions is None:
            raise Conflict("This daemon has no agents.")
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES + 4096, compress=False, heartbeat=20.0)
        if not _is_upgrade(socket, request):
            raise UsageError("A session is attended by a WebSocket.", "Use `rmx run` or `rmx shell`.")
        job = await settled(self._service.reading.job(job_id))
        await socket.prepare(request)
        try:
            asked = await self._asked(socket)
            begin = asked.begin_fields()
            way = sessions.attend(job, asked.host, asked.session, begin, caller.user)
            async with way as attended:
                await socket.send_json({"ok": True})
                await self._pass_on(socket, attended, request)
        except RmError as error:
            with suppress(ConnectionError):
                await socket.send_json({"error": _told(error)})
        finally:
            with suppress(ConnectionError):
                await socket.close()
        return socket

    async def _asked(self, socket: web.WebSocketResponse) -> SessionRequest:
        try:
            message = await socket.receive(ASKED_S)
        except TimeoutError:
            raise UsageError("The request for a session did not come in time.") from None
        if message.type is not WSMsgType.TEXT:
            raise UsageError("The first message of a session is a JSON object.")
        asked = wire.typed_body(message.data.encode(), SessionRequest)
        if not SESSION.match(asked.session):
            raise UsageError("The name of a session is 8 to 40 lower-case letters and digits.")
        return asked

    async def _pass_on(
        self, socket: web.WebSocketResponse, way: AttendedSession, request: web.Request
    ) -> None:
        lets = asyncio.ensure_future(until_not_let(request, self._keeper))
        out = asyncio.ensure_future(self._from_host(socket, way))
        into = asyncio.ensure_future(self._to_host(socket, way))
        try:
            await asyncio.wait({out, into, lets}, return_when=asyncio.FIRST_COMPLETED)
            gone = out.done() and not out.result()
            if gone:  # what they said last comes first: perhaps that they leave
                await asyncio.wait({into}, timeout=ASKED_S)
            if gone or not out.done():  # or they may attend no more
                with suppress(RmError, TimeoutError):
                    await asyncio.wait_for(way.away(), ASKED_S)
            if lets.done():
                lets.result()
        finally:
            for task in (out, into, lets):
                task.cancel()
            await asyncio.gather(out, into, lets, return_exceptions=True)

    async def _from_host(self, socket: web.WebSocketResponse, way: AttendedSession) -> bool:
        """Did the host's side end, and not who attends?"""
        with suppress(RmError):
            while data := await way.read():
                try:
                    await socket.send_bytes(data)  # waits for a client that reads slowly
                except ConnectionError:
                    return False
        return True

    async def _to_host(self, socket: web.WebSocketResponse, way: AttendedSession) -> None:
        with suppress(RmError, ConnectionError):
            while True:
                message: Any = await socket.receive()
                if message.type is not WSMsgType.BINARY:
                    return
                await way.write(message.data)


def _is_upgrade(socket: web.WebSocketResponse, request: web.Request) -> bool:
    try:
        return socket.can_prepare(request).ok
    except UnicodeError:  # its refusal would quote a header that is no text
        return False


def _told(error: RmError) -> dict[str, str]:
    kind = "Unreachable" if isinstance(error, Unreachable) else type(error).__name__
    return {"kind": kind, "message": error.what, "hint": error.hint}
