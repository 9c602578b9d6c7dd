"""Answers that last, such as a log that is followed: as long as the caller would still be let in."""

from __future__ import annotations

import asyncio

from aiohttp import web

from rm.errors import Forbidden
from rm.web.callers.identity import CALLER, Doorkeeper, caller_of

AGAIN_S = 10.0  # between two looks at whether the caller's token and role still count


async def until_not_let(request: web.Request, keeper: Doorkeeper) -> None:
    """Raises, as soon as that is so, what the caller is refused with when their token or account counts no
    more, or their role is less than it was; never ends otherwise."""
    first = request[CALLER]
    while True:
        await asyncio.sleep(AGAIN_S)
        now = await caller_of(request, keeper)
        if now.role < first.role:
            raise Forbidden("Your rights were taken away meanwhile.")
