"""What a daemon that waits for its turn says to whoever asks: who leads, and where."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from aiohttp import web

from rm.errors import Standby
from rm.web.answers import refuse
from rm.web.listener import bind

LEADER = "Rm-Leader"  # a header: the machine of the daemon that leads, and its socket, with a space between


async def serve_standby(socket_path: str, shared: bool, holder: Callable[[], str]) -> web.AppRunner:
    """Answer every request with the leader; `await runner.cleanup()` ends it and removes the socket.

    `holder` names the leader as its lease does: machine, socket and a random name, with colons between.

    Raises:
        Conflict: another daemon already listens there.
    """
    listener = bind(socket_path, shared)

    async def answer(request: web.Request) -> web.StreamResponse:
        machine, _, rest = holder().partition(":")
        path = rest.rpartition(":")[0]
        error = Standby("This daemon waits for its turn to lead the cluster.", "Try again.")
        if path:
            error = Standby(
                f"This daemon waits: another leads the cluster, on {machine} at {path}.",
                f"Ask that one: rmx --socket {path} there, or RM_DAEMON=ssh://{machine}{path}",
            )
        refused = refuse(error.http_status, type(error).__name__, error.what, error.hint)
        if machine and path.startswith("/"):
            refused.headers[LEADER] = f"{machine} {path}"
        return refused

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)

    async def remove(_: web.Application) -> None:
        with contextlib.suppress(OSError):
            os.unlink(socket_path)

    app.on_cleanup.append(remove)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner
