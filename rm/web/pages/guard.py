"""What keeps the page harmless: it reads only, and only for whoever asked for this very machine.

The page has no cookies and no forms, so there is nothing to forge. What is left is a foreign site
whose name is made to point at this machine (DNS rebinding) and which then reads along: its requests
bear its own name as `Host`, and are refused. An address cannot be made to point elsewhere.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

log = logging.getLogger("rm.web")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "rm",
}


def names_of_this_machine() -> frozenset[str]:
    return frozenset({"localhost", os.uname().nodename.lower()})


def is_for_us(host: str, names: Collection[str]) -> bool:
    """Does a `Host` header name this machine: one of `names`, or an address?"""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        if "@" in host or not name:
            return False
    except ValueError:
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, text=f"{error.reason}.\n")
    except Exception:
        log.exception("%s failed", request.path)
        return web.Response(status=500, text="The page met a defect of its own; the log has the details.\n")


def guarded(names: Collection[str]) -> Middleware:
    """The middleware; `names` in small letters."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse
        if not is_for_us(request.headers.get("Host", ""), names):
            text = (
                "This page is not served under that name. Add it to web.names in rm.toml if it should be.\n"
            )
            response = web.Response(status=421, text=text)
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(
                status=405, text="This page can only be read.\n", headers={"Allow": "GET, HEAD"}
            )
        else:
            response = await _answered(request, handler)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return guard
