"""What keeps the page harmless: requests must be for this very machine, and forms must be its own.

A foreign site whose name is made to point at this machine (DNS rebinding) sends its own name as `Host`, and
is refused; an address cannot be made to point elsewhere. What changes something is sent by POST, and must
come, by the browser's word, from this page: a form of a foreign site, or of another port of this machine,
is refused before anybody looks who sent it.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rm.errors import RmError

log = logging.getLogger("rm.web")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
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


def is_ours(request: web.Request) -> bool:
    """Was the form sent by a page of this very origin, by the browser's own word?"""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None and origin is None:
        return False
    same = origin is None or urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower()
    return same and site in (None, "same-origin")


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """A signal, called before the headers are sent: a log is sent long before it is whole."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return web.Response(status=error.status, text=f"{error.reason}.\n")
    except RmError as error:
        return web.Response(status=error.http_status, text=f"{error}\n")
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
        elif request.method not in ("GET", "HEAD", "POST"):
            response = web.Response(status=405, headers={"Allow": "GET, HEAD, POST"})
        elif request.method == "POST" and not is_ours(request):
            response = web.Response(
                status=403, text="This form was not sent by this page, and nothing was done.\n"
            )
        else:
            response = await _answered(request, handler)
        return response

    return guard
