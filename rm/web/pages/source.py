"""What the page shows is what the API answers: asked over the daemon's socket, like any client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from yarl import URL

from rm import errors
from rm.errors import RmError, Unreachable

FRESH_S = 1.0  # an answer serves everybody who looks within this time
KEPT = 512  # answers
TIMEOUT_S = 20.0
T = TypeVar("T")


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

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        for _, future in self._known.values():
            future.cancel()


class Source:
    """Answers of the API by path. Several readers of one answer cost the daemon one request."""

    def __init__(self, socket_path: str, fresh_s: float = FRESH_S) -> None:
        self._path = socket_path
        self._session: aiohttp.ClientSession | None = None
        self._answers: Shared[dict[str, Any]] = Shared(fresh_s, KEPT)

    async def close(self) -> None:
        self._answers.close()
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, fresh_s: float | None = None) -> dict[str, Any]:
        """The answer to `GET /v1/PATH`, no older than `fresh_s`; a dictionary that nobody changes.

        Raises:
            Unreachable: no daemon, or one that does not answer.
            RmError: what the daemon answered, NotFound for one.
        """
        return await self._answers.get(path, lambda: self._ask(path), fresh_s)

    async def raw(self, target: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        """The answer to `GET TARGET`, a path with its query as it was sent: status, type and body.

        Raises:
            Unreachable: no daemon, or one that does not answer.
        """
        try:
            async with self._opened().get(
                URL(f"http://rm{target}", encoded=True), headers=headers
            ) as response:
                kind = response.headers.get("Content-Type", "application/octet-stream")
                return response.status, kind, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise self._silent() from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._path),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            )
        return self._session

    def _silent(self) -> Unreachable:
        return Unreachable(f"The daemon does not answer on {self._path}.", "Start it with `rmx daemon`.")

    async def _ask(self, path: str) -> dict[str, Any]:
        try:
            async with self._opened().get(URL(f"http://rm/v1/{path}", encoded=True)) as response:
                answer = msgspec.json.decode(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
            raise self._silent() from None
        if not isinstance(answer, dict):
            raise Unreachable(f"What listens on {self._path} does not speak rm's protocol.")
        if "error" in answer:
            raise _failure(answer["error"])
        return answer


def _failure(told: Any) -> RmError:
    """The API's error as the class it had there."""
    kind = getattr(errors, str(told.get("kind")), RmError)
    wanted = kind if isinstance(kind, type) and issubclass(kind, RmError) else RmError
    return wanted(str(told.get("message", "The daemon refused.")), str(told.get("hint", "")))
