"""Doors for programs of jobs: each a socket for one client, to whom the API answers as the job's user.

The client process runs with the daemon's account, whose connections could do anything: so who is at such a
door is decided here, whatever the process says.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import web

from rm.web.door import Guest, Guests
from rm.web.identity import OfJob, belongs_to
from rm.web.limits import LIMITS

SHORT = "/tmp"  # a socket's path has 107 characters, which TMPDIR may use up


class JobDoors:
    """Of the API that `runner` serves."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner
        self._guests = runner.app[LIMITS].guests

    @asynccontextmanager
    async def open(self, job: OfJob) -> AsyncIterator[str]:
        """The path of a socket for the client of this job."""
        handler_of = cast(Callable[[], Any], self._runner.server)

        def guest() -> _Client:
            return _Client(self._guests, handler_of(), job)

        with tempfile.TemporaryDirectory(prefix="rm-", dir=SHORT, ignore_cleanup_errors=True) as folder:
            path = os.path.join(folder, "door")
            server = await asyncio.get_running_loop().create_unix_server(guest, path)
            try:
                yield path
            finally:
                server.close()


class _Client(Guest):
    """Of whom there are few, whose connections are not counted; their requests are, by user."""

    __slots__ = ("_job",)

    def __init__(self, guests: Guests, handler: Any, job: OfJob) -> None:
        super().__init__(guests, handler, f"jobs of {job.user}")
        self._job = job

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        belongs_to(transport, self._job)
        super().connection_made(transport)

    def uncount(self) -> None:
        pass
