"""Clients for the programs of jobs: Slurm's commands inside a job, which run beside the daemon as its user.

A program waits on its host (agents/rm_client.py), whose agent says so. Here the daemon goes there, over a
channel of its own, and a client of the daemon does what the program was called for. The host is not trusted:
it is heard for the jobs that are placed on it, and what it says becomes a command of the job's user, or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from rm.daemon.services.sessions import Attended
from rm.errors import RmError
from rm.protocol.clients import ENDED, ERRORS, frame
from rm.protocol.notifications import Asked

MOST, OF_HOST, OF_USER = 64, 16, 8  # clients at once: of all, for a host, for a user
KEPT, FEW = 16, 2  # of all: for users who have fewer
OFF = b"error: This cluster's administrator gives jobs no clients: jobs.clients in rm.toml is off.\n"
log = logging.getLogger(__name__)


class Asker(NamedTuple):
    """For whom a client runs."""

    user: str
    host: str
    job: int


class Way(Protocol):
    """To the program, byte by byte; both may raise Unreachable."""

    async def read(self) -> bytes:
        """What comes next; empty at the end."""
        ...

    async def write(self, data: bytes) -> None: ...


class RunsClient(Protocol):
    async def __call__(self, asker: Asker, way: Way) -> None:
        """Run one client, until it or the program has ended."""
        ...


class JobClients:
    """Args:
    attend: opens a channel to a host, as `Fleet.attend`; called in a thread.
    cluster: the id of ours.
    user_of: whose attempt of a job is placed on a host, "" where none is; called in any thread.
    waiting: an event that is set by each new version of a job meanwhile.
    run: None where jobs have no clients.
    """

    def __init__(
        self,
        *,
        attend: Callable[[str], Any],
        cluster: str,
        user_of: Callable[[str, int, int], str],
        waiting: Callable[[int], AbstractContextManager[asyncio.Event]],
        run: RunsClient | None,
    ) -> None:
        self._attend, self._cluster = attend, cluster
        self._user_of, self._waiting, self._run = user_of, waiting, run
        self._loop = asyncio.get_running_loop()
        self._of_user: Counter[str] = Counter()
        self._of_host: Counter[str] = Counter()
        self._coming: Counter[tuple[str, int, int]] = Counter()  # clients on their way, by host, job, attempt
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def asked(self, host: str, told: Asked) -> None:
        """In the host's thread. Who finds no room now is told of again."""
        if user := self._user_of(host, told.job, told.attempt):
            self._loop.call_soon_threadsafe(self._begin, host, told, user)

    async def close(self) -> None:
        """No client runs any more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, host: str, told: Asked, user: str) -> None:
        key = (host, told.job, told.attempt)
        while (
            self._coming[key] < told.waiting
            and self._of_user[user] < OF_USER
            and self._of_host[host] < OF_HOST
            and len(self._tasks) < (MOST if self._of_user[user] < FEW else MOST - KEPT)
            and not self._closed
        ):
            self._coming[key] += 1
            self._of_user[user] += 1
            self._of_host[host] += 1
            task = self._loop.create_task(self._serve(key, user))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, key: tuple[str, int, int], user: str) -> None:
        host, job, attempt = key
        way = Attended()
        try:
            try:
                await way.reach(self._attend, host)
                asked = {"cluster": self._cluster, "job": job, "attempt": attempt, "answer": True}
                somebody = (await way.greet(asked)).get("ok")  # else nobody waits any more
            finally:  # who has a client waits no more: the host's next word is of others
                self._less(self._coming, key)
            if not somebody:
                return
            if self._run is None:
                await way.write(frame(ERRORS, 0, OFF) + frame(ENDED, 1))
            else:
                await self._while_placed(key, self._run(Asker(user, host, job), way))
        except RmError as error:
            log.info("a program of job %d on %s has got no client: %s", job, host, error)
        except Exception:
            log.exception("a client for job %d on %s failed", job, host)
        finally:
            way.close()
            self._less(self._of_user, user)
            self._less(self._of_host, host)

    async def _while_placed(self, key: tuple[str, int, int], client: Coroutine[Any, Any, None]) -> None:
        """A host that keeps the channel does not speak for a job that has ended."""
        running = asyncio.ensure_future(client)
        ending = asyncio.ensure_future(self._until_ended(*key))
        try:
            await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (running, ending):
                one.cancel()
            await asyncio.wait({running, ending})
        for one in (running, ending):
            if not one.cancelled():
                one.result()

    async def _until_ended(self, host: str, job: int, attempt: int) -> None:
        with self._waiting(job) as changed:
            while self._user_of(host, job, attempt):
                await changed.wait()
                changed.clear()

    @staticmethod
    def _less(counter: Counter[Any], key: Any) -> None:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
