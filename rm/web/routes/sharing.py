"""`/v1/accounts`, `/v1/qos` and `/v1/partitions`: accounts with shares and limits, who is in them, QOS, and
what is ruled of partitions.

The contract is docs/http-api.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from rm.adapters.store.audit_scope import about
from rm.api import sharing
from rm.core.people.audit import listed
from rm.core.sharing import accounts as core
from rm.web import wire
from rm.web.answers import respond, typed
from rm.web.callers.identity import CALLER
from rm.web.callers.visible_jobs import VisibleJobs
from rm.web.handling import settled
from rm.web.planning_ports import AccountService
from rm.web.ports import Service

Asked = TypeVar("Asked", bound=msgspec.Struct)


class SharingRoutes:
    def __init__(self, service: Service, visible: VisibleJobs) -> None:
        self._service = service
        self._visible = visible

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/accounts", self.accounts),
            web.get("/v1/shares", self.shares),
            web.post("/v1/accounts", self.add_account),
            web.post("/v1/accounts-import", self.import_accounts),
            web.post("/v1/accounts/{name}", self.set_account),
            web.delete("/v1/accounts/{name}", self.remove_account),
            web.post("/v1/accounts/{name}/members", self.put_members),
            web.delete("/v1/accounts/{name}/members/{user}", self.remove_member),
            web.post("/v1/qos", self.add_qos),
            web.post("/v1/qos/{name}", self.set_qos),
            web.delete("/v1/qos/{name}", self.remove_qos),
            web.get("/v1/partitions", self.partitions),
            web.post("/v1/partitions", self.add_partition),
            web.post("/v1/partitions/{name}", self.set_partition),
            web.delete("/v1/partitions/{name}", self.remove_partition),
        ]

    @property
    def _keeper(self) -> AccountService:
        return self._service.account_service

    async def accounts(self, request: web.Request) -> web.Response:
        sight = await self._visible.sight(request)
        return _all(sight.accounts(await settled(self._keeper.accounts())))

    async def shares(self, request: web.Request) -> web.Response:
        told = (await self._visible.sight(request)).shares(await settled(self._keeper.shares()))
        return respond(sharing.Shares(shares=[typed(one, sharing.Share) for one in told]))

    async def add_account(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.AccountRequest)
        about(f"account {asked.name}")
        return _all(await settled(self._keeper.add_account(_named(asked), request[CALLER].user)), 201)

    async def import_accounts(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.AccountsImport)
        wanted = core.Accounts(
            tuple(core.Account(**msgspec.structs.asdict(one)) for one in asked.accounts),
            tuple(core.Member(**msgspec.structs.asdict(one)) for one in asked.members),
            tuple(
                core.Qos(**{**msgspec.structs.asdict(one), "accounts": (*one.accounts,)}) for one in asked.qos
            ),
            dict(asked.limits),
            tuple(
                core.Partition(
                    **{**msgspec.structs.asdict(one), "accounts": (*one.accounts,), "qos": (*one.qos,)}
                )
                for one in asked.partitions
            ),
        )
        return _all(await settled(self._keeper.import_accounts(wanted, request[CALLER].user)))

    async def set_account(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.AccountUpdate)
        name = request.match_info["name"]
        return _all(await settled(self._keeper.set_account(name, _named(asked), request[CALLER].user)))

    async def remove_account(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _all(await settled(self._keeper.remove_account(name, request[CALLER].user)))

    async def put_members(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.MemberRequest)
        name = request.match_info["name"]
        about(f"account {name} user {listed(asked.users)}")
        return _all(await settled(self._keeper.put_members(name, _named(asked), request[CALLER].user)))

    async def remove_member(self, request: web.Request) -> web.Response:
        name, user = request.match_info["name"], request.match_info["user"]
        return _all(await settled(self._keeper.remove_members(name, [user], request[CALLER].user)))

    async def add_qos(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.QosRequest)
        about(f"qos {asked.name}")
        return _all(await settled(self._keeper.add_qos(_named(asked), request[CALLER].user)), 201)

    async def set_qos(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.QosUpdate)
        name = request.match_info["name"]
        return _all(await settled(self._keeper.set_qos(name, _named(asked), request[CALLER].user)))

    async def remove_qos(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _all(await settled(self._keeper.remove_qos(name, request[CALLER].user)))

    async def partitions(self, request: web.Request) -> web.Response:
        return _partitions(await settled(self._keeper.accounts()))

    async def add_partition(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.PartitionRequest)
        about(f"partition {asked.name}")
        made = await settled(self._keeper.add_partition(_named(asked), request[CALLER].user))
        return _partitions(made, 201)

    async def set_partition(self, request: web.Request) -> web.Response:
        asked = wire.typed_body(await request.read(), sharing.PartitionUpdate)
        name = request.match_info["name"]
        return _partitions(
            await settled(self._keeper.set_partition(name, _named(asked), request[CALLER].user))
        )

    async def remove_partition(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _partitions(await settled(self._keeper.remove_partition(name, request[CALLER].user)))


def _named(asked: msgspec.Struct) -> Mapping[str, Any]:
    """The fields that the request has."""
    fields = msgspec.structs.asdict(asked)
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _partitions(found: core.Accounts, status: int = 200) -> web.Response:
    told = [typed(one, sharing.Partition) for one in found.partitions]
    return respond(sharing.Partitions(partitions=told), status)


def _all(found: core.Accounts, status: int = 200) -> web.Response:
    return respond(typed(found, sharing.Accounts), status)
