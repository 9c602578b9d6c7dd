"""The page's TCP port."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

from aiohttp import web

from rm.errors import ConfigError
from rm.web.pages.app import make_page
from rm.web.pages.guard import names_of_this_machine
from rm.web.pages.settings import PageSettings
from rm.web.pages.source import Source


def address_of(listen: str, key: str = "web.listen") -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:8080`, `8080` (this machine only) to host and port.

    Raises:
        ConfigError: it is no address.
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


async def serve_page(socket_path: str, listen: str, settings: PageSettings) -> tuple[web.AppRunner, str]:
    """Serve the page of the daemon at `socket_path`; the runner, whose `cleanup()` ends it, and the URL.

    Raises:
        ConfigError: nothing can listen there.
    """
    host, port = address_of(listen)
    names = (*names_of_this_machine(), host, *settings.names)
    app = make_page(Source(socket_path), replace(settings, names=names))
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=75, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"The page cannot listen on {listen}: {error.strerror or error}.", "Name another port."
        ) from None
    port = runner.addresses[0][1]
    return runner, f"http://{f'[{host}]' if ':' in host else host}:{port}/"
