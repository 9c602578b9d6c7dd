"""What handlers of the API share: numbers of the query, work beside the event loop, clients that go away."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiohttp import web

from rm.errors import Conflict, UsageError
from rm.web import wire
from rm.web.planning_ports import Answer
from rm.web.ports import Monitoring, Service

BESIDE = web.AppKey("beside", asyncio.Semaphore)
NUMBER_MAX = 1 << 53  # an offset into a file, and its sum with a size, stay in what the kernel takes
LONG = 50  # jobs whose reading or telling is long: some milliseconds
REST, REST_MAX_S = 3.0, 0.3  # the pause after a piece of work, in times its length
STILL_THERE_S = 2.0  # between two looks whether the client waits still
T = TypeVar("T")


def monitoring_of(service: Service) -> Monitoring:
    if service.monitoring is None:
        raise Conflict("This daemon does not monitor.")
    return service.monitoring


async def settled(answer: Answer[T]) -> T:
    return await answer if inspect.isawaitable(answer) else answer


async def while_connected(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client has gone."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=STILL_THERE_S)
            if done:
                return task.result()
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client has gone")
    finally:
        task.cancel()


async def beside(request: web.Request, work: Callable[[], T], rests: bool = False) -> T:
    """Off the event loop, one after the other: several would leave it little of the interpreter. Work that
    `rests` may hold the interpreter in one piece (decoding): a pause as long as REST of it follows, so that a
    request that needs several turns of the interpreter meets one such piece, not many."""
    turn, loop = request.app[BESIDE], asyncio.get_running_loop()
    await turn.acquire()
    since_s = loop.time()
    try:
        return await asyncio.to_thread(work)
    finally:
        loop.call_later(min(REST * (loop.time() - since_s), REST_MAX_S) if rests else 0.0, turn.release)


async def decoded(request: web.Request, most_bytes: int) -> dict[str, Any]:
    """The body of a request, as `wire.decode`; a long one beside the event loop."""
    body = await request.read()
    if len(body) <= wire.SMALL_BYTES:
        return wire.decode(body, most_bytes)
    return await beside(request, lambda: wire.decode(body, most_bytes), rests=True)


async def made(request: web.Request, work: Callable[[], T], jobs: int) -> T:
    """The result of work that goes over this many jobs: of many beside the event loop."""
    return await beside(request, work) if jobs > LONG else work()


def number(request: web.Request, name: str, default: float, least: float = 0) -> float:
    """Of the query; one that is larger than any that makes sense is as good as the largest."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value >= least or value == float("inf"):
        raise UsageError(f"'{name}' is '{text}', and must be a number of at least {least:g}.")
    return min(value, NUMBER_MAX)
