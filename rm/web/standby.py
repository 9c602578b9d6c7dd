"""The answer of a daemon that waits for its turn, at each of its doors: who leads, and where."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from html import escape

from aiohttp import web

from rm.config import Config
from rm.core.store import Lease
from rm.errors import ConfigError, Standby
from rm.web.addresses import doors_of, is_of_one_machine
from rm.web.answers import refused
from rm.web.doors.door import Door
from rm.web.doors.errors_once import ErrorsOnce
from rm.web.doors.listener import bind
from rm.web.doors.port import RETRY_S
from rm.web.https import HttpsDoor
from rm.web.pages.guard import add_headers
from rm.web.pages.listen import guests_of, page_listener

LEADER = "Rm-Leader"  # a header: the machine of the daemon that leads, and its socket, with a space between
LEADER_URL = "Rm-Leader-Url"  # the address of its HTTPS door
SHUTDOWN_S = 0.1  # for an answer that is being sent: this daemon is about to lead
NOBODY = Standby("This daemon waits for its turn to lead the cluster.", "Try again.")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>rm: another daemon leads</title>
</head>
<body>
<main>
<h1>Another daemon leads</h1>
<p>{what}</p>
<p>{hint}</p>
</main>
</body>
</html>
"""
log = logging.getLogger("rm.web")
Leader = Callable[[], Lease]
Opening = Callable[[], Awaitable[web.AppRunner]]


async def serve_standby(config: Config, leader: Leader) -> web.AppRunner:
    """Answer every request with the leader; `await runner.cleanup()` ends it and removes the socket.

    The lease that `leader` gives names its holder by machine, socket and a random name, with colons between.
    The socket is there on return; the HTTPS door and the page open as soon as they can.

    Raises:
        Conflict: another daemon already listens there.
    """
    path = config.daemon.socket
    listener = bind(path, config.daemon.shared)

    async def answer(request: web.Request) -> web.StreamResponse:
        return _at_the_socket(leader())

    async def remove(_: web.Application) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)

    app = _answering(answer)
    app.cleanup_ctx.append(lambda _: _other_doors(config, leader))
    app.on_cleanup.append(remove)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=0.5)
    await runner.setup()
    await Door(runner, listener, guests_of(config.limits)).start()
    return runner


def _answering(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    return app


# -- what is said


def _at_the_socket(lease: Lease) -> web.Response:
    machine, path = _place(lease)
    if lease.doors.machine and not _is_here(lease):
        machine = lease.doors.machine
    error = NOBODY
    if path:
        error = Standby(
            f"This daemon waits: another leads the cluster, on {machine} at {path}.",
            f"Ask that one: rmx --socket {path} there, or RM_DAEMON=ssh://{machine}{path}",
        )
    answer = refused(error)
    if machine and path.startswith("/"):
        answer.headers[LEADER] = f"{machine} {path}"
    return answer


def _at_https(lease: Lease, own: str) -> web.Response:
    url, error = _known(lease, lease.doors.https, own), _elsewhere(lease, "https.url")
    if url:
        error = Standby(
            f"This daemon waits: another leads the cluster, at {url}.", f"Ask that one: RM_DAEMON={url}"
        )
    answer = refused(error)
    if url:
        answer.headers[LEADER_URL] = url
    return answer


def _at_the_page(lease: Lease, own: str) -> web.Response:
    url, error = _known(lease, lease.doors.page, own), _elsewhere(lease, "web.url")
    what, hint = escape(error.what), escape(error.hint)
    if url:
        what = "This daemon waits: another leads the cluster."
        hint = f'Its page is at <a href="{escape(url)}">{escape(url)}</a>.'
    text = PAGE.format(what=what, hint=hint)
    return web.Response(text=text, status=error.http_status, content_type="text/html")


def _elsewhere(lease: Lease, key: str) -> Standby:
    """Of a leader whose door here has no address that is known: strangers need not know its socket."""
    machine, _ = _place(lease)
    if not machine:
        return NOBODY
    what = f"This daemon waits: another leads the cluster, on {machine}."
    return Standby(what, f"Its rm.toml names no address that leads there ({key}).")


def _place(lease: Lease) -> tuple[str, str]:
    """The leader's machine and socket; "" when nobody leads."""
    machine, _, rest = lease.holder.partition(":")
    return machine, rest.rpartition(":")[0]


def _known(lease: Lease, url: str, own: str) -> str:
    """The leader's URL, where it means the leader: it may be this daemon's, too (they share a name), or mean
    another machine here."""
    foreign = url and is_of_one_machine(url) and not _is_here(lease)
    return "" if not lease.holder or foreign or url == own else url


def _is_here(lease: Lease) -> bool:
    return _place(lease)[0] == socket.gethostname()


# -- the doors for other machines


async def _other_doors(config: Config, leader: Leader) -> AsyncIterator[None]:
    """They are open while this runs."""
    own = doors_of(config)

    def is_leaders(url: str, of: Callable[[Lease], str]) -> bool | None:
        lease = leader()
        return (_is_here(lease) and bool(url) and of(lease) == url) if lease.holder else None

    async def https() -> web.AppRunner:
        return await _open_https(config, lambda: _at_https(leader(), own.https))

    async def page() -> web.AppRunner:
        return await _open_page(config, lambda: _at_the_page(leader(), own.page))

    tasks = []
    if config.https.listen:
        tasks.append(_keep_open(https, lambda: is_leaders(own.https, lambda lease: lease.doors.https)))
    if config.web.listen:
        tasks.append(_keep_open(page, lambda: is_leaders(own.page, lambda lease: lease.doors.page)))
    running = [asyncio.create_task(task) for task in tasks]
    yield
    for task in running:
        task.cancel()
    for ended in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(ended, Exception):
            log.error("a door of this daemon was closed while it waited", exc_info=ended)


async def _keep_open(opened: Opening, is_leaders: Callable[[], bool | None]) -> None:
    """Open the door, unless it is the very door of the leader, which runs on this machine as well: that one
    needs the port. While nobody leads it stays as it is."""
    runner: web.AppRunner | None = None
    told = ""
    errors = ErrorsOnce(f"A door is not open, and is tried again every {RETRY_S:g} s")
    try:
        while True:
            taken = is_leaders()
            if taken and runner is not None:
                closed, runner = runner, None
                await closed.cleanup()
            elif taken is False and runner is None:
                try:
                    runner = await opened()
                    told = ""
                    errors.forget()
                except ConfigError as error:
                    if told != str(error):
                        log.warning("%s Until it leads the daemon tries again, every %g s", error, RETRY_S)
                    told = str(error)
                except Exception as error:
                    errors.tell(error)
            await asyncio.sleep(RETRY_S)
    finally:
        if runner is not None:
            await runner.cleanup()


async def _open_https(config: Config, answer: Callable[[], web.Response]) -> web.AppRunner:
    door = HttpsDoor(config.https)
    app = _answering(_closing(answer))
    app.on_cleanup.append(door.stop)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=SHUTDOWN_S)
    try:
        await runner.setup()
        await door.start(runner, guests_of(config.limits), "says who leads")
    except BaseException:
        await runner.cleanup()
        raise
    return runner


async def _open_page(config: Config, answer: Callable[[], web.Response]) -> web.AppRunner:
    app = _answering(_closing(answer))
    app.on_response_prepare.append(add_headers)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=SHUTDOWN_S)
    try:
        await runner.setup()
        listener = page_listener(config.web.listen)
        await Door(runner, listener, guests_of(config.limits)).start()
    except BaseException:
        await runner.cleanup()
        raise
    log.info("the page's port %d says who leads", listener.getsockname()[1])
    return runner


def _closing(answer: Callable[[], web.Response]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Strangers keep no connections to a daemon that does nothing for them."""

    async def answered(request: web.Request) -> web.StreamResponse:
        response = answer()
        response.force_close()
        return response

    return answered
