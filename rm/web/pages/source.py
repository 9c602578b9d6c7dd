"""What the page shows is what the API answers: asked over the daemon's socket, like any client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from rm import errors
from rm.errors import RmError, Unreachable

FRESH_S = 1.0  # an answer serves everybody who looks within this time
KEPT = 256
TIMEOUT_S = 20.0


class Source:
    """Answers of the API by path. Several readers of one answer cost the daemon one request."""

    def __init__(self, socket_path: str, fresh_s: float = FRESH_S) -> None:
        self._path = socket_path
        self._fresh_s = fresh_s
        self._session: aiohttp.ClientSession | None = None
        self._answers: dict[str, tuple[float, asyncio.Future[dict[str, Any]]]] = {}

    async def close(self) -> None:
        for _, future in self._answers.values():
            future.cancel()
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> dict[str, Any]:
        """The answer to `GET /v1/PATH`; a dictionary that nobody changes.

        Raises:
            Unreachable: no daemon, or one that does not answer.
            RmError: what the daemon answered, NotFound for one.
        """
        now_s = time.monotonic()
        known = self._answers.get(path)
        if known is None or now_s - known[0] >= self._fresh_s:
            if len(self._answers) >= KEPT:
                self._answers = {p: a for p, a in self._answers.items() if now_s - a[0] < self._fresh_s}
            known = self._answers[path] = (now_s, asyncio.ensure_future(self._ask(path)))
            known[1].add_done_callback(lambda f: f.cancelled() or f.exception())  # nobody may be waiting
        return await asyncio.shield(known[1])

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
            async with self._opened().get(f"http://rm/v1/{path}") as response:
                answer = await response.json()
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError):
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
