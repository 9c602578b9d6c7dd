"""`/v1/alerts`: what is wrong, who looks after it, what is silenced. The contract is docs/http-api.md."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from rm.adapters.store.audit_scope import about
from rm.api import alerts
from rm.core.people.audit import listed
from rm.errors import Conflict, UsageError
from rm.web import wire
from rm.web.answers import respond, respond_as, typed
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import decoded
from rm.web.ports import Alerts, Service

COMMENT_MAX = 500  # characters
NAMES_MAX = 1_000


class AlertRoutes:
    def __init__(self, service: Service, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/alerts", self.alerts),
            web.post("/v1/alerts/acknowledge", self.acknowledge),
            web.post("/v1/alerts/silences", self.silence),
            web.delete(r"/v1/alerts/silences/{id:\d{1,9}}", self.end_silence),
        ]

    def _alerts(self) -> Alerts:
        found = self._service.alerting
        if found is None:
            raise Conflict("This daemon does not look for alerts.")
        return found

    async def alerts(self, request: web.Request) -> web.Response:
        return respond_as(alerts.Alerts, (await self._visible.sight(request)).alerts(self._alerts().view()))

    async def acknowledge(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = await decoded(request, wire.LIST_BYTES)
        wire.fields(body, "alerts", "comment")
        names = texts(body, "alerts")
        if not names:
            raise UsageError("'alerts' must be a list of at least one id, key or subject.")
        about("alert " + listed(names))
        keys, kept = self._alerts().acknowledge(names, by, comment(body))
        await asyncio.wrap_future(kept)
        return respond(alerts.Acknowledged(acknowledged=keys))

    async def silence(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = await decoded(request, wire.LIST_BYTES)
        wire.fields(body, "conditions", "hosts", "for_s", "comment")
        for_s = body.get("for_s")
        if isinstance(for_s, bool) or not isinstance(for_s, int | float) or not abs(for_s) < math.inf:
            raise UsageError("'for_s' must be a number of seconds.")
        conditions, hosts = texts(body, "conditions"), texts(body, "hosts")
        for_us = round(max(-1.0, min(for_s, 1e9)) * 1e6)
        about("silence of " + listed([*conditions, *hosts]))
        made, kept = self._alerts().silences.add(conditions, hosts, for_us, by, comment(body))
        await asyncio.wrap_future(kept)
        return respond(alerts.OneSilence(silence=typed(made, alerts.Silence)))

    async def end_silence(self, request: web.Request) -> web.Response:
        gone, kept = self._alerts().silences.end(int(request.match_info["id"]))
        await asyncio.wrap_future(kept)
        return respond(alerts.OneSilence(silence=typed(gone, alerts.Silence)))


def texts(body: Mapping[str, Any], key: str) -> list[str]:
    value = body.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise UsageError(f"'{key}' must be a list of names.")
    if len(value) > NAMES_MAX:
        raise UsageError(f"'{key}' has more than {NAMES_MAX} names.")
    return value


def comment(body: Mapping[str, Any]) -> str:
    value = body.get("comment", "")
    if not isinstance(value, str) or len(value) > COMMENT_MAX:
        raise UsageError(f"'comment' must be text of up to {COMMENT_MAX} characters.")
    return " ".join(value.split())
