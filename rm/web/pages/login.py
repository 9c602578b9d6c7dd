"""How people come in: with a token, through a reverse proxy that knows them, or by the link of `rmx web`."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rm.api.people import Me
from rm.errors import Forbidden, RmError, Unreachable
from rm.web.callers.shares import LOCAL_USER
from rm.web.doors.door import PEER
from rm.web.pages.forms import form_of, simple_form_of
from rm.web.pages.frame import Frame
from rm.web.pages.people import (
    NOBODY,
    Door,
    Person,
    Sessions,
    as_account,
    as_own_user,
    digest,
    with_token,
)
from rm.web.pages.settings import PROXY_SECRET, PageSettings, Proxy
from rm.web.pages.source import Source

PERSON: web.RequestKey[Person] = web.RequestKey("person", Person)
OPEN_TO_ALL = ("/login", "/enter", "/favicon.ico")
FOR_PROGRAMS = ("/metrics", "/maddash/")
REFUSED = (401, 403)
TOKEN_MOST = 500  # characters


class Login:
    def __init__(self, source: Source, settings: PageSettings, sessions: Sessions, frame: Frame) -> None:
        self._source = source
        self._settings = settings
        self._sessions = sessions
        self._frame = frame

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/login", self.form),
            web.post("/login", self.enter_with_token),
            web.get("/enter", self.enter_with_key),
            web.post("/logout", self.leave),
        ]

    # -- who asks

    def middleware(self) -> Middleware:
        @web.middleware
        async def know(request: web.Request, handler: Handler) -> web.StreamResponse:
            person = request[PERSON] = await self._person(request)
            if not person.known and not self._settings.anonymous and not _is_open(request.path):
                return _sent_away(request)
            if request.method == "POST" and request.path != "/login":
                await self._must_be_ours(request, person)
            return await handler(request)

        return know

    async def _person(self, request: web.Request) -> Person:
        door = self._door(request)
        if door is NOBODY:
            return Person(NOBODY)
        leaves = door.key.startswith("session ")
        try:
            me = await self._source.at(door).get(Me, "me")
        except RmError as error:
            # a token that was revoked, or is over; nobody is sent away because the daemon is, or is busy
            if error.http_status not in REFUSED and door.key.startswith("token "):
                raise  # anyone may say so: this one was never let in
            me = Me(user="" if error.http_status in REFUSED else "?", role="nobody")
        if not me.user:
            if leaves:
                self._sessions.close(self._cookie(request))
            return Person(NOBODY)
        door = door.seen_from(request.remote or "")
        return Person(door, me.user, me.role, self._sessions.secret(door), leaves)

    def _door(self, request: web.Request) -> Door:
        if (proxy := self._proxy(request)) is not None:
            named = request.headers.getall(proxy.header, [])
            if len(named) == 1 and named[0]:
                return as_account(named[0])
        found = self._sessions.find(self._cookie(request), _local(request))
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if found is None and kind.lower() == "bearer" and request.path.startswith(FOR_PROGRAMS):
            return with_token(token, f"token {digest(token)}")
        return found or NOBODY

    async def _must_be_ours(self, request: web.Request, person: Person) -> None:
        """That the request was sent from where it says is `guard`'s; here, that the form was made for this
        session."""
        given = str((await form_of(request)).get("secret", "")) if person.known else ""
        if not person.known or not hmac.compare_digest(given.encode(), person.secret.encode()):
            told = "This form belongs to another session, and nothing was done: open it again"
            raise web.HTTPForbidden(reason=told)

    # -- in and out

    async def form(self, request: web.Request) -> web.Response:
        if request[PERSON].known:
            raise web.HTTPSeeOther(_next(request.query))
        return self._shown(request, "")

    async def enter_with_token(self, request: web.Request) -> web.Response:
        if not self._is_private(request):
            return self._shown(request, "This connection is not encrypted.", 403)
        asked = await simple_form_of(request)
        token = str(asked.get("token", "")).strip()
        if not token or len(token) > TOKEN_MOST or not token.isascii() or not token.isprintable():
            return self._shown(request, "That is not a token.", 403)
        try:
            door = with_token(token).seen_from(request.remote or "")  # wrong tokens are recorded, too
            me = await self._source.at(door).ask_anew(Me, "me")
        except Unreachable as error:
            return self._shown(request, str(error), 502)
        except RmError as error:
            return self._shown(request, str(error), 403)
        if not me.user:
            return self._shown(request, "The daemon does not know this token.", 403)
        return self._let_in(request, with_token(token), me.user, _next(asked))

    async def enter_with_key(self, request: web.Request) -> web.Response:
        own, given = self._settings.own_key, request.query.get("key", "")
        if not own or not hmac.compare_digest(given.encode(), own.encode()):
            raise Forbidden(
                "This link does not belong to the page that runs now.", "`rmx web` prints its link."
            )
        return self._let_in(request, as_own_user(), "", "/")

    async def leave(self, request: web.Request) -> web.Response:
        self._sessions.close(self._cookie(request), _local(request))
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(self._name(request), path="/")
        return response

    def _let_in(self, request: web.Request, door: Door, user: str, then: str) -> web.Response:
        self._sessions.close(self._cookie(request), _local(request))
        response = web.Response(status=303, headers={"Location": then})
        cookie = self._sessions.open(door, user, _local(request))
        response.set_cookie(
            self._name(request), cookie, path="/", httponly=True, samesite="Strict",
            secure=self._is_encrypted(request),
        )  # fmt: skip
        return response

    def _shown(self, request: web.Request, problem: str, status: int = 200) -> web.Response:
        fields = {
            "problem": problem,
            "private": self._is_private(request),
            "then": _next(request.query),
            "anonymous": self._settings.anonymous,
        }
        return self._frame.page("login.html", request[PERSON], fields, status)

    # -- the connection

    def _name(self, request: web.Request) -> str:
        return "__Host-rm" if self._is_encrypted(request) else "rm"

    def _cookie(self, request: web.Request) -> str:
        return request.cookies.get(self._name(request), "")

    def _is_encrypted(self, request: web.Request) -> bool:
        """As far as the browser, which may talk to a reverse proxy."""
        behind = self._proxy(request) is not None and request.headers.get("X-Forwarded-Proto") == "https"
        return request.secure or behind

    def _proxy(self, request: web.Request) -> Proxy | None:
        """The reverse proxy, if it is what sent this request."""
        proxy, secret = self._settings.proxy, request.headers.get(PROXY_SECRET, "")
        return proxy if proxy is not None and proxy.trusts(request.remote or "", secret) else None

    def _is_private(self, request: web.Request) -> bool:
        """May a token travel here?"""
        try:
            return self._is_encrypted(request) or ipaddress.ip_address(request.remote or "").is_loopback
        except ValueError:
            return False


def _local(request: web.Request) -> str:
    """The user of this machine who connects; "" = they are elsewhere, or the kernel does not tell."""
    key = request.get(PEER, "")
    return key if key.startswith(LOCAL_USER) else ""


def _is_open(path: str) -> bool:
    return path in OPEN_TO_ALL or path.startswith("/static/")


def _sent_away(request: web.Request) -> web.Response:
    """People to the login; programs, and the parts of a page that is open, with an error."""
    path = request.path
    if request.method != "GET" or path.startswith((*FOR_PROGRAMS, "/part/")) or path.endswith("/log"):
        return web.Response(status=401, text="Log in first.\n", headers={"WWW-Authenticate": "Bearer"})
    asked = "" if request.path_qs == "/" else "?" + urlencode({"next": request.path_qs})
    return web.Response(status=303, headers={"Location": f"/login{asked}"})


def _next(asked: Mapping[str, object]) -> str:
    """Where to go after the login: a path of ours, or the beginning."""
    path = str(asked.get("next", ""))
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/") and not path.startswith("//") else "/"
