"""The TCP port of a door to other machines, which the daemon before this one may still have."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rm.errors import ConfigError
from rm.web.doors.door import BACKLOG
from rm.web.doors.errors_once import ErrorsOnce

RETRY_S = 1.0  # to open a door whose port another process has
log = logging.getLogger("rm.web")


class PortTaken(ConfigError):
    """Another process listens there."""


def listener_at(host: str, port: int, what: str, hint: str) -> socket.socket:
    """`what` cannot be done, if nothing can listen there.

    Raises:
        PortTaken: another process has the port.
        ConfigError: it is no address of this machine, or the port is not for this user.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        kind = PortTaken if error.errno == errno.EADDRINUSE else ConfigError
        raise kind(f"{what}: {error.strerror or error}.", hint) from None


async def opened(open_door: Callable[[], Awaitable[None]], waits: bool) -> asyncio.Task[None] | None:
    """Open a door. If its port is taken and the daemon `waits`, the task that is given back opens it later:
    the daemon that led before may stand still on this machine, and a cluster without a leader is worse than
    a leader without a door.

    Raises:
        PortTaken: another process has the port, and the daemon does not wait.
        ConfigError: the door cannot be opened.
    """
    try:
        await open_door()
    except PortTaken as error:
        if not waits:
            raise
        log.warning("%s The daemon leads without it, and tries again every %g s", error, RETRY_S)
        return asyncio.create_task(_again(open_door, error))
    return None


async def _again(open_door: Callable[[], Awaitable[None]], first: PortTaken) -> None:
    """Whatever goes wrong: the descriptors that have run out, for one, come back."""
    errors = ErrorsOnce(f"A door is not open, and is tried again every {RETRY_S:g} s")
    while True:
        await asyncio.sleep(RETRY_S)
        try:
            return await open_door()
        except Exception as error:
            if str(error) != str(first):  # it is in the log
                errors.tell(error)


async def given_up(task: asyncio.Task[None] | None) -> None:
    """End what opens a door, or looks after it, in a loop that no error ends."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
