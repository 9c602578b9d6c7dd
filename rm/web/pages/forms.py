"""Forms that the page is sent: read within bounds, from any sender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

FORM_MOST = 5 << 20  # bytes: a script has 4 MiB
FIELDS_MOST = 64  # each of them costs the event loop time
SIMPLE = "application/x-www-form-urlencoded"
SIMPLE_MOST = 8_192  # bytes


async def form_of(request: web.Request) -> Mapping[str, Any]:
    """The fields of a form from somebody who is logged in.

    Raises:
        HTTPException: it is none that a browser sends, or it is too large.
    """
    try:
        return await request.post()
    except (ValueError, LookupError, AssertionError, web.RequestPayloadError):
        raise web.HTTPBadRequest(reason="That is no form of this page") from None


async def simple_form_of(request: web.Request) -> Mapping[str, Any]:
    """The few short fields of a form from anyone who reaches the page; raises as `form_of`."""
    size = request.content_length
    if size is None:
        raise web.HTTPLengthRequired
    if size > SIMPLE_MOST:
        raise web.HTTPRequestEntityTooLarge(SIMPLE_MOST, size)
    if request.content_type != SIMPLE:
        raise web.HTTPUnsupportedMediaType
    return await form_of(request)
