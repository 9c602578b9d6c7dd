"""What the page shows is what the API answers: asked over the daemon's socket, like any client."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from rm.api.answer import Refused
from rm.errors import RmError, Unreachable, as_told
from rm.typed import decoder_of
from rm.web.pages.people import Door

FRESH_S = 1.0  # an answer serves everybody who looks within this time
KEPT = 512  # answers
SOON = aiohttp.ClientTimeout(total=20.0)
# a log that is followed may say nothing for long, and a mesh takes its time
WHENEVER = aiohttp.ClientTimeout(total=None, sock_connect=20.0)
TRY_AGAIN_S = 0.02
NO_HEADERS: Mapping[str, str] = {}
T = TypeVar("T")
Kind = TypeVar("Kind", bound=msgspec.Struct)


class Shared(Generic[T]):
    """Work done once for all who ask for it at about the same time. A failure is shared as well."""

    def __init__(self, fresh_s: float, kept: int) -> None:
        self._fresh_s = fresh_s
        self._kept = kept
        self._known: dict[str, tuple[float, asyncio.Future[T]]] = {}

    async def get(self, key: str, work: Callable[[], Awaitable[T]], fresh_s: float | None = None) -> T:
        """What `work` yields, or yielded no longer than `fresh_s` ago; nobody may change it. A failure is
        kept no longer than usual."""
        now_s = time.monotonic()
        known = self._known.get(key)
        good = known is not None and not (known[1].done() and (known[1].cancelled() or known[1].exception()))
        kept_s = fresh_s if good and fresh_s is not None else self._fresh_s
        if known is None or now_s - known[0] >= kept_s:
            self._known.pop(key, None)
            known = self._known[key] = (now_s, asyncio.ensure_future(work()))
            known[1].add_done_callback(lambda f: f.cancelled() or f.exception())  # nobody may be waiting
            while len(self._known) > self._kept:
                del self._known[next(iter(self._known))]
        return await asyncio.shield(known[1])

    def forget(self, prefix: str) -> None:
        """What is kept under keys that begin so."""
        for key in [key for key in self._known if key.startswith(prefix)]:
            del self._known[key]

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        for _, future in self._known.values():
            future.cancel()


class _Connector(aiohttp.UnixConnector):
    """Waits where very many connect. For a socket that does not block the kernel says EAGAIN then, which
    asyncio takes for a connection."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        async with asyncio.timeout(timeout.sock_connect or timeout.total):
            made = await _connected(self.path)
        try:
            _, protocol = await self._loop.create_unix_connection(self._factory, sock=made)
        except BaseException:
            made.close()
            raise
        return protocol


async def _connected(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)
        while True:
            try:
                made.connect(path)
                return made
            except BlockingIOError:
                await asyncio.sleep(TRY_AGAIN_S)
    except BaseException:
        made.close()
        raise


class Source:
    """The daemon's API over its socket."""

    def __init__(self, socket_path: str, fresh_s: float = FRESH_S) -> None:
        self._path = socket_path
        self._session: aiohttp.ClientSession | None = None
        self.answers: Shared[Any] = Shared(fresh_s, KEPT)

    async def close(self) -> None:
        self.answers.close()
        if self._session is not None:
            await self._session.close()

    def at(self, door: Door) -> View:
        return View(self, door)

    @asynccontextmanager
    async def ask(
        self,
        door: Door,
        method: str,
        target: str,
        body: Any = None,
        more: Mapping[str, str] = NO_HEADERS,
        timeout: aiohttp.ClientTimeout = SOON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a request on behalf of the person at this door; `target` as it is sent.

        Raises:
            Unreachable: no daemon, or one that does not answer.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", **more, **door.headers}
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=_Connector(self._path, limit=0))
        try:
            url = URL(f"http://rm{target}", encoded=True)
            async with self._session.request(
                method, url, data=data, headers=headers, timeout=timeout
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise Unreachable(
                f"The daemon does not answer on {self._path}.", "Start it with `rmx daemon`."
            ) from None


class View:
    """Answers of the API by path, as one person gets them. Several readers of one answer cost the daemon one
    request."""

    def __init__(self, source: Source, door: Door) -> None:
        self._source = source
        self.door = door

    async def get(self, kind: type[Kind], path: str, fresh_s: float | None = None) -> Kind:
        """The answer to `GET /v1/PATH`, no older than `fresh_s`.

        Raises:
            Unreachable: no daemon, or one that does not answer.
            RmError: what the daemon answered, NotFound for one.
        """
        key = f"{self.door.key}\n{path}"
        answer: Kind = await self._source.answers.get(key, lambda: self._answer(kind, "GET", path), fresh_s)
        return answer

    async def ask_anew(self, kind: type[Kind], path: str) -> Kind:
        """As `get`, and nothing is kept."""
        return await self._answer(kind, "GET", path)

    async def change(
        self,
        kind: type[Kind],
        method: str,
        path: str,
        body: Any = None,
        timeout: aiohttp.ClientTimeout = SOON,
    ) -> Kind:
        """The answer to a request that changes something; what was kept for the person is forgotten."""
        try:
            return await self._answer(kind, method, path, body, timeout)
        finally:
            self._source.answers.forget(f"{self.door.key}\n")

    async def raw(self, target: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        """The answer to `GET TARGET`, a path with its query as it was sent: status, type and body.

        Raises:
            Unreachable: no daemon, or one that does not answer.
        """
        async with self._source.ask(self.door, "GET", target, more=headers) as response:
            kind = response.headers.get("Content-Type", "application/octet-stream")
            return response.status, kind, await response.read()

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of `GET /v1/PATH` as it comes."""
        async with self._source.ask(self.door, "GET", f"/v1/{path}", timeout=WHENEVER) as response:
            if response.status >= 400:
                raise _failure(await response.read())
            yield response.content.iter_any()

    async def _answer(
        self,
        kind: type[Kind],
        method: str,
        path: str,
        body: Any = None,
        timeout: aiohttp.ClientTimeout = SOON,
    ) -> Kind:
        async with self._source.ask(self.door, method, f"/v1/{path}", body, timeout=timeout) as response:
            answer = await response.read()
            if response.status >= 400:
                raise _failure(answer)
            return _decoded(kind, answer)


@cache
def _decoder(kind: type[Kind]) -> msgspec.json.Decoder[Kind]:
    return decoder_of(kind)


def _decoded(kind: type[Kind], body: bytes) -> Kind:
    try:
        answer: Kind = _decoder(kind).decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise Unreachable(
            "What listens on the daemon's socket does not speak the protocol of this rm.",
            "Start the page with the rm that the daemon runs.",
        ) from None
    return answer


def _failure(body: bytes) -> RmError:
    """The API's error as the class it had there."""
    told = _decoded(Refused, body).error
    return as_told(told.kind, told.message, told.hint, told.refusal)
