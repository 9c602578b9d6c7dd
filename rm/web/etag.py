"""ETags: an answer that the client has already is not sent again (RFC 9110, 304 Not Modified)."""

from __future__ import annotations

import asyncio
import hashlib

from aiohttp import ETag, web
from aiohttp.typedefs import Handler

LONG_BYTES = 1 << 20  # longer answers are digested beside the event loop


def etag_of(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def is_known(request: web.Request, etag: str) -> bool:
    """Has the client said that it has this very answer?"""
    told = request.if_none_match
    return told is not None and any(tag.value == etag for tag in told)


@web.middleware
async def tagged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reads are answered with the ETag of their content; nobody between may keep them for others."""
    answer = await handler(request)
    if request.method not in ("GET", "HEAD") or answer.status != 200 or not isinstance(answer, web.Response):
        return answer
    body = answer.body
    if not isinstance(body, bytes):
        return answer
    etag = etag_of(body) if len(body) < LONG_BYTES else await asyncio.to_thread(etag_of, body)
    if is_known(request, etag):
        answer = web.Response(status=304)
    answer.etag = ETag(etag)
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer
