"""`/v1/tokens` and `/v1/audit`. The contract is docs/http-api.md."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from rm.api import accounts
from rm.core.people import token as core
from rm.core.people.rights import Scope
from rm.errors import Conflict, Forbidden, NotFound
from rm.web import wire
from rm.web.answers import respond
from rm.web.callers.accounts import Accounts
from rm.web.callers.identity import CALLER, Caller
from rm.web.handling import number
from rm.web.ports import Service, Tokens

ACTS_MOST = 10_000


class AccountRoutes:
    def __init__(self, service: Service, known: Accounts) -> None:
        self._service = service
        self._known = known

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/tokens", self.tokens),
            web.post("/v1/tokens", self.create),
            web.delete("/v1/tokens/{token}", self.revoke),
            web.get("/v1/audit", self.audit),
        ]

    def _tokens(self) -> Tokens:
        found = self._service.tokens
        if found is None:
            raise Conflict("This daemon keeps no tokens.")
        return found

    async def tokens(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "user")
        caller, keeper = request[CALLER], self._tokens()
        user = request.query.get("user", "") or caller.user
        if user != caller.user:
            caller.must_administer("see the tokens of others")
        found = keeper.tokens("" if user == "*" else user)
        return respond(accounts.Tokens(tokens=[self._shown(token) for token in found]))

    async def create(self, request: web.Request) -> web.Response:
        caller, keeper = request[CALLER], self._tokens()
        if caller.token or caller.of_job:  # what is stolen would outlive its end and its revocation
            raise Forbidden(
                f"{_what(caller)} cannot create tokens.", "Make it on the control machine: rmx token create."
            )
        asked = wire.typed_body(await request.read(), accounts.TokenRequest)
        user = asked.user or caller.user
        if user != caller.user:
            caller.must_administer(f"make tokens for {user}")
        scope = Scope(asked.scope)
        uid = (await self._known.account(user)).uid
        if uid is None:
            raise NotFound(f"There is no account '{user:.100}' on this machine.", "Create the user first.")
        made, text = await keeper.create(
            user, uid, scope, int(asked.expires_s * 1e6), asked.name, caller.user
        )
        return respond(accounts.NewToken(token=self._shown(made), text=text), 201)

    async def revoke(self, request: web.Request) -> web.Response:
        caller, keeper = request[CALLER], self._tokens()
        id = request.match_info["token"]
        if not caller.admin and keeper.token(id).user != caller.user:
            raise NotFound(f"You have no token {id:.50}.", "`rmx token list` shows them.")
        if (caller.token or caller.of_job) and caller.token != id and not caller.admin:
            raise Forbidden(
                f"{_what(caller)} cannot revoke another token.", "On the control machine: rmx token revoke."
            )
        return respond(accounts.OneToken(token=self._shown(await keeper.revoke(id, caller.user))))

    async def audit(self, request: web.Request) -> web.Response:
        wire.fields(request.query, "after", "since_us", "user", "limit")
        audit = self._service.audit
        if audit is None:
            raise Conflict("This daemon keeps no audit log.")
        after, since_us = (int(number(request, name, 0)) for name in ("after", "since_us"))
        limit = max(1, min(int(number(request, "limit", 1000)), ACTS_MOST))
        found = await audit.read(after, limit, since_us, request.query.get("user", ""))
        told = [accounts.Act(seq=seq, **_fields(act)) for seq, act in found]
        return respond(accounts.Acts(acts=told))

    def _shown(self, token: core.Token) -> accounts.Token:
        fields = _fields(token)
        for hidden in ("digest", "uid"):
            del fields[hidden]
        return accounts.Token(**fields, live=token.lives(self._tokens().now_us()))


def _fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def _what(caller: Caller) -> str:
    return "A program of a job" if caller.of_job else "A token"
