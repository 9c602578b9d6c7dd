"""`/v1/hosts`: the hosts, what is free on them, and what administrators do to them. The contract is
docs/http-api.md."""

from __future__ import annotations

from aiohttp import web

from rm.api import hosts
from rm.core.model.host import Host
from rm.errors import UsageError
from rm.web import wire
from rm.web.answers import host_of, listed_host, respond, respond_as
from rm.web.callers.access import Gate
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import beside, settled
from rm.web.ports import Service


class HostRoutes:
    """`gate` records what administrators read of others."""

    def __init__(self, service: Service, gate: Gate, visible: VisibleJobs) -> None:
        self._service = service
        self._gate = gate
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/hosts", self.hosts),
            web.post("/v1/hosts", self.add_hosts),
            web.delete("/v1/hosts/{name}", self.remove_host),
            web.post("/v1/hosts/{name}/drain", self.drain),
            web.post("/v1/hosts/{name}/resume", self.resume),
            web.post("/v1/hosts/{name}/adopt", self.adopt),
            web.get("/v1/hosts/{name}/key", self.present_key),
            web.post("/v1/hosts/{name}/key", self.accept_key),
        ]

    async def hosts(self, request: web.Request) -> web.Response:
        private = "variables" in request.query
        if private:
            request[CALLER].must_administer("see the variables of hosts")
            await self._gate.read_of_others(request)
        sight = await self._visible.sight(request)
        found = sight.listed(await settled(self._service.host_service.hosts()))
        shown = [listed_host(host, free, ids, private) for host, free, ids in found]
        return respond(hosts.Hosts(hosts=shown))

    async def add_hosts(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        body = await request.read()
        asked = (
            await beside(request, lambda: _hosts_of(body), rests=True)
            if len(body) > wire.SMALL_BYTES
            else _hosts_of(body)
        )
        add = self._service.host_service.add_hosts
        added = await settled(add(asked, caller.user, caller.owns_machine))
        return respond(hosts.Hosts(hosts=[host_of(host) for host in added]), 201)

    async def remove_host(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        host = await settled(self._service.host_service.remove_host(request.match_info["name"], by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def drain(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read())
        wire.fields(body, "reason")
        reason = body.get("reason", "")
        if not isinstance(reason, str):
            raise UsageError("'reason' must be text.")
        host = await settled(self._service.host_service.drain(request.match_info["name"], reason, by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def resume(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        host = await settled(self._service.host_service.resume(request.match_info["name"], by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def adopt(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read())
        wire.fields(body, "stop_jobs")
        stop_jobs = body.get("stop_jobs", False)
        if not isinstance(stop_jobs, bool):
            raise UsageError("'stop_jobs' must be true or false.")
        host = await settled(self._service.host_service.adopt(request.match_info["name"], stop_jobs, by))
        return respond(hosts.OneHost(host=host_of(host)))

    async def present_key(self, request: web.Request) -> web.Response:
        keys = await settled(self._service.host_service.present_key(request.match_info["name"]))
        return respond_as(hosts.HostKeys, keys)

    async def accept_key(self, request: web.Request) -> web.Response:
        by = request[CALLER].user
        body = wire.decode(await request.read())
        wire.fields(body, "fingerprint")
        fingerprint = body.get("fingerprint")
        if not isinstance(fingerprint, str) or not fingerprint:
            raise UsageError("'fingerprint' must be the fingerprint of the key to accept.")
        keys = await settled(
            self._service.host_service.accept_key(request.match_info["name"], fingerprint, by)
        )
        return respond_as(hosts.HostKeys, keys)


def _hosts_of(text: bytes) -> list[Host]:
    body = wire.decode(text, len(text))
    wire.fields(body, "hosts")
    values = body.get("hosts")
    if not isinstance(values, list) or not values:
        raise UsageError("'hosts' must be a list of at least one host.")
    return [wire.host_from(value) for value in values]
