"""The limits of each user on every request: how often, how much, how slowly."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rm.api.people import ACTING_FOR
from rm.config import LimitsConfig
from rm.errors import LimitReached, UsageError
from rm.web.callers.identity import CALLER, Caller
from rm.web.callers.shares import BODY_UNIT_BYTES, Key, Shares
from rm.web.doors.door import Guests

SLOWEST_BPS = 8 * (64 << 10)  # of a body, or of the reader of an answer
REFUSE_S = 1.0  # so that a refused client does not ask again at once


class Limits:
    """`privileged` users are not slowed down: root and the daemon's own."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self.privileged = frozenset({0, os.geteuid()})
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.shares = Shares(limits, descriptors, privileged=self.privileged)
        self.guests = Guests(self.shares, limits.header_s, limits.idle_s)

    def middleware(self) -> Middleware:
        @web.middleware
        async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
            guest = self.guests.of(request)
            if guest is None:
                return await handler(request)
            guest.begin()
            try:
                return await self._serve(request, handler, self._key(request, guest.key))
            finally:
                guest.end()

        return limited

    def _key(self, request: web.Request, peer: Key) -> Key | None:
        """Whose share it is; None = of those who are not slowed down."""
        caller: Caller | None = request.get(CALLER)
        if caller is not None and caller.token:
            return caller.uid
        if peer not in self.privileged:
            return peer
        name = request.headers.get(ACTING_FOR)
        return None if name is None else f"for {name}"

    def charge(self, request: web.Request, count: int) -> None:
        """A request that was as much work as `count` more."""
        guest = self.guests.of(request)
        key = self._key(request, guest.key) if guest is not None else None
        if key is not None and count:
            self.shares.charge(key, count * BODY_UNIT_BYTES)

    async def _serve(self, request: web.Request, handler: Handler, key: Key | None) -> web.StreamResponse:
        if key is not None:
            try:
                wait_s = self.shares.take(key)
            except LimitReached:
                await asyncio.sleep(REFUSE_S)
                raise
            if wait_s:
                await asyncio.sleep(wait_s)
        body_bytes = self._declared(request)
        shares = self.shares
        with self._carrying(key, body_bytes):
            if body_bytes:
                await self._read(request, body_bytes)
            with nullcontext() if key is None or not reads_log(request) else shares.following(key):
                response = await handler(request)
        body = response.body if isinstance(response, web.Response) else None
        if isinstance(body, bytes) and len(body) > BODY_UNIT_BYTES:
            with self._carrying(key, len(body)):
                await self._send(request, response, len(body))
        return response

    @contextmanager
    def _carrying(self, key: Key | None, size_bytes: int) -> Iterator[None]:
        if key is None or not size_bytes:
            yield
            return
        self.shares.charge(key, size_bytes)
        with self.shares.carrying(key, size_bytes):
            yield

    def _declared(self, request: web.Request) -> int:
        if not request.can_read_body:
            return 0
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise UsageError("The body of the request is compressed.", "Send it as it is.")
        most = self._limits.body_bytes
        declared = request.content_length
        if declared is not None and declared > most:
            raise web.HTTPRequestEntityTooLarge(most, declared)
        return most if declared is None else declared

    async def _read(self, request: web.Request, size_bytes: int) -> None:
        """Into the request, which keeps it for the handler."""
        if request.content.is_eof():  # it came with the head
            await request.read()
            return
        try:
            async with asyncio.timeout(self._patience_s(size_bytes)):
                await request.read()
        except TimeoutError:
            raise UsageError("The body of the request came too slowly.") from None

    async def _send(self, request: web.Request, response: web.StreamResponse, size_bytes: int) -> None:
        try:
            async with asyncio.timeout(self._patience_s(size_bytes)):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the client does not read its answer") from None

    def _patience_s(self, size_bytes: int) -> float:
        return self._limits.header_s + 8 * size_bytes / SLOWEST_BPS


LIMITS = web.AppKey("limits", Limits)


def reads_log(request: web.Request) -> bool:
    return request.path.endswith("/logs")
