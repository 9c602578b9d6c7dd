"""Somebody who looks at the page, without a browser: cookies are kept, redirects are seen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from rm.core.people.rights import Role
from rm.errors import Unauthenticated
from rm.web.callers import identity
from rm.web.pages.listen import serve_page
from rm.web.pages.settings import PageSettings

SECRET = re.compile(r'name="secret" value="(\w+)"')


@dataclass
class Tokens:
    """Tokens that the daemon knows: token -> user; some of the users are administrators."""

    users: dict[str, str] = field(default_factory=dict)
    admins: tuple[str, ...] = ()

    async def caller_of(self, request: Any, keeper: Any) -> identity.Caller:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer":
            return await identity.caller_of(request, keeper)
        if token not in self.users:
            raise Unauthenticated("This token is not known.", "It was revoked, or its time is over.")
        user = self.users[token]
        return identity.Caller(12345, user, Role.ADMIN if user in self.admins else Role.USER, "page")


@dataclass
class Told:
    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def where(self) -> str:
        return self.headers.get("Location", "")


class Visitor:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def get(self, path: str, **headers: str) -> Told:
        return await self._ask("GET", path, headers, None)

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> Told:
        """As this page's forms are sent; `headers` may say otherwise."""
        return await self._ask("POST", path, {"Origin": self.url, **headers}, form)

    async def log_in(self, token: str, **headers: str) -> Told:
        return await self.post("/login", {"token": token}, **headers)

    async def send(self, path: str, **fields: str) -> Told:
        """A form with the secret of the one that is there at this path."""
        return await self.post(path.partition("?")[0], {**fields, "secret": await self.secret(path)})

    async def secret(self, path: str = "/do/silence") -> str:
        found = SECRET.search((await self.get(path)).text)
        return found[1] if found else ""

    async def _ask(self, method: str, path: str, headers: Mapping[str, str], form: Any) -> Told:
        kept = {name: value for name, value in headers.items() if value}
        async with self.session.request(
            method, self.url + path, headers=kept, data=form, allow_redirects=False
        ) as response:
            return Told(response.status, await response.text(), dict(response.headers))


Visit = Callable[[], Visitor]


@asynccontextmanager
async def page(socket: str, settings: PageSettings) -> AsyncIterator[Visit]:
    """A page of the daemon there; each call is a visitor with cookies of their own."""
    runner, url = await serve_page(socket, "127.0.0.1:0", settings)
    visitors: list[Visitor] = []

    def visit() -> Visitor:
        visitors.append(Visitor(url))
        return visitors[-1]

    try:
        yield visit
    finally:
        for visitor in visitors:
            await visitor.session.close()
        await runner.cleanup()


def visiting(socket: str, story: Callable[[Visit], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with page(socket, PageSettings(**settings)) as visit:
            await story(visit)

    asyncio.run(main())
