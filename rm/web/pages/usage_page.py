"""`/usage`: what jobs used, by day, and by names of jobs and by host, as far as whoever looks may know."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlencode

from aiohttp import web

from rm.api.usage import Usage
from rm.errors import RmError
from rm.units import DAY_US, HOUR_US
from rm.web.pages import usage_view
from rm.web.pages.frame import Frame
from rm.web.pages.login import PERSON
from rm.web.pages.source import Source

NAME_MOST = 255  # characters of a name in a query
FRESH_S = 30.0


class UsagePage:
    def __init__(self, source: Source, frame: Frame) -> None:
        self._source = source
        self._frame = frame

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/usage", self.usage)]

    async def usage(self, request: web.Request) -> web.Response:
        person = request[PERSON]
        view = self._source.at(person.door)
        days = request.query.get("days", "")
        days = days if days in usage_view.DAYS else usage_view.USUAL
        only = {name: request.query.get(name, "")[:NAME_MOST] for name in usage_view.FILTERS}
        only = {name: value for name, value in only.items() if value}
        # whole hours, so that pages of the same hour ask for the same
        until_us = -(-time.time_ns() // 1_000 // HOUR_US) * HOUR_US
        asked = {"since_us": until_us - int(days) * DAY_US, "until_us": until_us, **only}

        async def by(name: str) -> Usage:
            return await view.get(Usage, f"usage?{urlencode({'by': name, **asked})}", FRESH_S)

        names = usage_view.named_by(only)
        try:
            day, *others = await asyncio.gather(*(by(name) for name in ("day", *names)))
        except RmError as error:
            return self._frame.page("failed.html", person, {"error": error}, error.http_status)
        named = [(name, told.lines) for name, told in zip(names, others, strict=True)]
        kept = {"days": days, **only}
        drawn = await asyncio.to_thread(usage_view.drawn, day.lines, named, day.since_us, day.until_us, kept)
        fields = {
            "drawn": drawn,
            "chosen": days,
            "spans": [
                (urlencode({**kept, "days": key}), word, key == days) for key, word in usage_view.DAYS.items()
            ],
            "only": [
                (usage_view.heading(name), value, urlencode({k: v for k, v in kept.items() if k != name}))
                for name, value in only.items()
            ],
        }
        return self._frame.page("usage.html", person, fields)
