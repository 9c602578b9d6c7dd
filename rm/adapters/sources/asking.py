"""One archive over HTTP: JSON answers of bounded size, in bounded time, and every failure a sentence."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from rm.core.monitoring.history import Sample, checks_of
from rm.core.monitoring.metrics import METRIC_OF
from rm.core.monitoring.source import Source
from rm.errors import ConfigError, RmError, Unreachable

T = TypeVar("T")
ANSWER_MAX = 32 << 20  # bytes of one answer
# Lists and mappings in it, and commas: to make values of more would keep the whole daemon waiting for long
NESTED_MAX, COMMAS_MAX = 250_000, 2_000_000
SAMPLES_MAX = 200_000  # of one reading; the rest waits for the next one
SIDE_BY_SIDE = 8  # requests
FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError)


@dataclass(slots=True)
class Found:
    """What an archive had. `strangers` counts what is not of our hosts, `odd` what could not be read;
    `message` is one such case, or what else went wrong in part."""

    samples: list[Sample] = field(default_factory=list)
    strangers: int = 0
    odd: int = 0
    message: str = ""

    def say(self, message: str) -> None:
        """The first is reported; further ones are like it."""
        self.message = self.message or message

    def misread(self, message: str) -> None:
        self.odd += 1
        self.say(message)


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: later than `since_us`, until `until_us`; `names`: endpoints to hosts of ours."""

    since_us: int
    until_us: int
    names: Mapping[str, str]

    def host(self, *endpoints: object) -> str:
        """The host that the first known of these endpoints is; "" when none is ours."""
        for endpoint in endpoints:
            if isinstance(endpoint, str) and endpoint.lower() in self.names:
                return self.names[endpoint.lower()]
        return ""


class Archive:
    """Open only inside `async with`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._session: aiohttp.ClientSession | None = None
        self._gate = asyncio.Semaphore(SIDE_BY_SIDE)

    async def __aenter__(self) -> Archive:
        source = self.source
        context: ssl.SSLContext | bool = True
        key = "ca_file"
        try:
            if source.ca_file:
                context = ssl.create_default_context(cafile=source.ca_file)
            key = "password_file"
            password = Path(source.password_file).read_text().strip() if source.password_file else ""
        except (OSError, ValueError) as error:
            # not its name, which everybody would see: somebody may have written the password itself there
            why = error.strerror if isinstance(error, OSError) else type(error).__name__
            raise ConfigError(f"The {key} of source {source.name} cannot be read: {why}.") from None
        headers = {"Accept": "application/json"}
        if source.user:
            token = base64.b64encode(f"{source.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=SIDE_BY_SIDE),
            timeout=aiohttp.ClientTimeout(total=source.timeout_us / 1e6),
            headers=headers,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    def at(self, path: str) -> str:
        """A path that the archive named, at the archive: a host that it names is never asked.

        Raises:
            Unreachable: it is not an address.
        """
        try:
            base, named = urlsplit(self.source.url), urlsplit(path)
        except ValueError:
            said = f"Archive {self.source.name} named '{path:.80}', which is not an address."
            raise Unreachable(said) from None
        return urlunsplit((base.scheme, base.netloc, named.path, named.query, ""))

    async def get(self, url: str, **params: str) -> Any:
        return await self._ask("GET", url, params, None)

    async def post(self, url: str, body: Any) -> Any:
        return await self._ask("POST", url, {}, body)

    async def _ask(self, method: str, url: str, params: Mapping[str, str], body: Any) -> Any:
        """The JSON value of the answer.

        Raises:
            Unreachable: nobody answers, or not as an archive would.
        """
        assert self._session is not None
        who = f"Archive {self.source.name}"
        try:
            async with (
                self._gate,
                self._session.request(
                    method, url, params=dict(params), json=body, allow_redirects=False
                ) as answer,
            ):
                if answer.status != 200:
                    raise Unreachable(f"{who} answered {answer.status} {answer.reason} at {url}.")
                content = await _bounded(answer, f"{who} sent more than {ANSWER_MAX} bytes from {url}.")
        except FAILURES as error:
            said = "it took too long" if isinstance(error, TimeoutError) else str(error) or "no answer"
            raise Unreachable(f"{who} cannot be asked at {url}: {said}.") from None
        if content.count(b"[") + content.count(b"{") > NESTED_MAX or content.count(b",") > COMMAS_MAX:
            raise Unreachable(f"{who} sent too many values in one answer from {url}.")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise Unreachable(f"{who} did not answer with JSON at {url}.") from None

    async def each(self, items: Iterable[T], ask: Callable[[T], Awaitable[None]], found: Found) -> None:
        """Ask for every item; failures are reported and the rest continues, unless all fail.

        Raises:
            Unreachable: not one could be asked.
        """
        answers = await asyncio.gather(*(ask(item) for item in items), return_exceptions=True)
        failures = [a for a in answers if isinstance(a, BaseException)]
        for failure in failures:
            if not isinstance(failure, RmError):
                raise failure
        if failures and len(failures) == len(answers):
            raise failures[0]
        for failure in failures:
            found.say(str(failure))


async def _bounded(answer: aiohttp.ClientResponse, said: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_chunked(1 << 16):
        size += len(part)
        if size > ANSWER_MAX:
            raise Unreachable(said)
        parts.append(part)
    return b"".join(parts)


class Tries:
    """Values of single tries, gathered from answers that have one metric each."""

    def __init__(self, mesh: str) -> None:
        self._mesh = mesh
        self._tries: dict[tuple[str, str, int], tuple[dict[str, float], dict[str, str]]] = {}

    def add(self, source: str, destination: str, at_us: int, values: Mapping[str, Any]) -> None:
        self._tries.setdefault((source, destination, at_us), ({}, {}))[0].update(values)

    def fail(self, source: str, destination: str, at_us: int, failed: str, checks: Iterable[str]) -> None:
        """The test that was made for these checks (none = nobody knows for which) found nothing."""
        known = self._tries.setdefault((source, destination, at_us), ({}, {}))[1]
        known.update(dict.fromkeys(tuple(checks) or ("",), failed[:200]))

    def into(self, found: Found) -> None:
        """The oldest ones: what is newer is there the next time, too."""
        ordered = sorted(self._tries.items(), key=lambda item: (item[0][2], item[0]))
        if len(ordered) > SAMPLES_MAX:
            found.say(f"There is more than fits in one reading ({len(ordered)}); the rest follows.")
        for (a, b, at_us), (values, failures) in ordered[:SAMPLES_MAX]:
            failed = {c: why for c, why in failures.items() if METRIC_OF.get(c) not in values}
            said = "; ".join(dict.fromkeys(failed.values()))
            sample = Sample(a, b, at_us, self._mesh, values, said)
            about = [check for check in failed if check]
            found.samples.append(replace(sample, checks=(*checks_of(sample), *about)) if about else sample)
