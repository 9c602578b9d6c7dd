"""The page's TCP port."""

from __future__ import annotations

import ipaddress
import resource
import socket
import time
from dataclasses import replace

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rm.config import LimitsConfig
from rm.errors import ConfigError
from rm.web.callers.shares import Shares
from rm.web.doors.door import PEER, Door, Guests
from rm.web.doors.port import listener_at
from rm.web.pages.guard import names_of_this_machine
from rm.web.pages.settings import PageSettings
from rm.web.pages.source import Source

FORM_S = 120.0  # for a form to come, at 64 KiB/s, and to be answered


def address_of(listen: str, key: str = "web.listen") -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:8080`, `8080` (this machine only) to host and port.

    Raises:
        ConfigError: it is not an address.
    """
    host, colon, port = listen.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or not host:
        raise ConfigError(
            f"{key} is '{listen}', which is not an address.",
            "Write an address and a port: 127.0.0.1:8080.",
        )
    return host, int(port)


def is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve_page(
    socket_path: str, listen: str, settings: PageSettings, limits: LimitsConfig | None = None
) -> tuple[web.AppRunner, str]:
    """Serve the page of the daemon at `socket_path`; the runner, whose `cleanup()` ends it, and the URL.

    Raises:
        ConfigError: nothing can listen there.
    """
    from rm.web.pages.app import make_page  # here: a daemon without a page starts without it

    host, _ = address_of(listen)
    names = (*names_of_this_machine(), host, *settings.names)
    app = make_page(Source(socket_path), replace(settings, names=names))
    guests = guests_of(limits or LimitsConfig())
    app.middlewares.insert(0, _attended(guests))
    runner = web.AppRunner(
        app, access_log=None, auto_decompress=False, keepalive_timeout=guests.idle_s, shutdown_timeout=1
    )
    await runner.setup()
    try:
        listener = page_listener(listen)
        await Door(runner, listener, guests).start()
    except BaseException:
        await runner.cleanup()
        raise
    port = listener.getsockname()[1]
    return runner, f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def page_listener(listen: str) -> socket.socket:
    """Raises ConfigError: nothing can listen there; it is PortTaken, if another process does."""
    return listener_at(*address_of(listen), f"The page cannot listen on {listen}", "Name another port.")


def guests_of(limits: LimitsConfig) -> Guests:
    """Anyone who reaches a port may hold connections, of half the descriptors at most: the daemon has
    others to serve, and files to open."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Guests(Shares(limits, descriptors), limits.header_s, limits.idle_s)


def _attended(guests: Guests) -> Middleware:
    @web.middleware
    async def attended(request: web.Request, handler: Handler) -> web.StreamResponse:
        guest = guests.of(request)
        if guest is None:
            return await handler(request)
        guest.begin()
        request[PEER] = str(guest.key)
        if request.method == "POST":
            guest.until_s = time.monotonic() + FORM_S
        try:
            return await handler(request)
        finally:
            guest.end()

    return attended
