"""Doors for programs of jobs: each a socket for one client, to whom the API answers as the job's user.

The client process runs with the daemon's account, whose connections could do anything: so who is at such a
door is decided here, whatever the process says.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Any, cast

from aiohttp import web

from rm.web.callers.identity import OfJob, belongs_to
from rm.web.doors.door import Guest, Guests
from rm.web.doors.limits import LIMITS

SHORT = "/tmp"  # a socket's path has 107 characters, which TMPDIR may use up
PREFIX = "rm-doors-"
TRIES = 10


@contextmanager
def folder_of_doors(place: str = SHORT) -> Iterator[str]:
    """A new one, locked as long as its daemon lives. Those in `place` that daemons of this account left when
    they were killed are removed: others' are not, nor locked ones."""
    for left in os.listdir(place):
        if left.startswith(PREFIX):
            path = os.path.join(place, left)
            with _locked(path) as ours:
                if ours:
                    shutil.rmtree(path, ignore_errors=True)
    for more in reversed(range(TRIES)):
        path = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        with _locked(path) as ours:
            try:
                if not ours and more:  # another daemon begins, which removes it
                    continue
                yield path  # not locked where nothing can be: then nobody removes what is left, either
                return
            finally:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Is this a directory of this account that nobody had locked?"""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another user's, or no directory
        yield False
        return
    try:
        yield _lock(fd, path)
    finally:
        os.close(fd)


def _lock(fd: int, path: str) -> bool:
    """Of a directory that is removed meanwhile the lock says nothing."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here, there = os.fstat(fd), os.lstat(path)
        return here.st_uid == os.geteuid() and os.path.samestat(here, there)
    return False


class JobDoors:
    """Of the API that `runner` serves, in the daemon's `folder` for them."""

    def __init__(self, runner: web.AppRunner, folder: str) -> None:
        self._runner, self._folder = runner, folder
        self._guests = runner.app[LIMITS].guests
        self._numbers = count()

    @asynccontextmanager
    async def open(self, job: OfJob) -> AsyncIterator[str]:
        """The path of a socket for the client of this job."""
        handler_of = cast(Callable[[], Any], self._runner.server)

        def guest() -> _Client:
            return _Client(self._guests, handler_of(), job)

        path = os.path.join(self._folder, str(next(self._numbers)))
        server = await asyncio.get_running_loop().create_unix_server(guest, path)
        try:
            yield path
        finally:
            server.close()
            with suppress(FileNotFoundError):  # asyncio removes it, from Python 3.13 on
                os.unlink(path)


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
