"""Sessions of jobs: somebody at the streams of a program that runs in a job, on one of its hosts.

The far end is the session's process on the host (agents/rm_session.py), which keeps what is not acknowledged:
here bytes are passed on, over a channel of its own to the host, as fast as the slower side takes them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from rm.core.model.job import Job, JobState
from rm.errors import Conflict, LimitReached, NotFound, RmError, Unreachable, UsageError
from rm.protocol.codes import Code
from rm.protocol.sessions import AWAY, frame

PIECE_BYTES = 64 << 10
ANSWER_S = 30.0
ANSWER_BYTES = 64 << 10
MOST = 512  # sessions that are attended at once
FEW = 4  # sessions that a user has while a quarter of all is kept for those who have fewer


class Attending(Protocol):
    """The hosts: `attend` gives a `paramiko.Channel`."""

    def attend(self, name: str) -> Any: ...


class Attended:
    """The way to one session; reading and writing wait in two threads of its own."""

    def __init__(self) -> None:
        self._channel: Any = None
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="session")

    async def reach(self, attend: Callable[[str], Any], host: str) -> None:
        """A host that does not answer keeps these threads, and none that others wait for."""
        self._channel = await asyncio.get_running_loop().run_in_executor(self._threads, attend, host)

    async def read(self) -> bytes:
        """What comes next; empty at the end."""
        data: bytes = await self._beside(self._channel.recv, PIECE_BYTES)
        return data

    async def write(self, data: bytes) -> None:
        await self._beside(self._channel.sendall, data)

    async def away(self) -> None:
        """Who attended has gone; the session waits for them a while."""
        await self.write(frame(AWAY, 0))

    async def greet(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """The first line each way."""
        self._channel.settimeout(ANSWER_S)
        await self.write(json.dumps(words).encode() + b"\n")
        line = await self._beside(self._line)
        self._channel.settimeout(None)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):  # a host says what it likes
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(
                "The host attends no sessions: " + (self._last_words() or "its agent is an older one") + ".",
                "Upgrade the agents: rmx playbook run agents.",
            )
        return answer

    def close(self) -> None:
        with suppress(Exception):  # paramiko raises all sorts of things on a dead transport
            self._channel.close()
        self._threads.shutdown(wait=False)

    def _line(self) -> bytes:
        """The whole line comes in time, or OSError: a byte now and then would keep this session's place."""
        line, until_s = bytearray(), time.monotonic() + ANSWER_S
        while len(line) < ANSWER_BYTES and not line.endswith(b"\n"):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("its agent did not answer in time")
            self._channel.settimeout(left_s)
            data: bytes = self._channel.recv(1)  # what follows the line is the session's
            if not data:
                break
            line += data
        return bytes(line)

    def _last_words(self) -> str:
        with suppress(Exception):
            if self._channel.recv_stderr_ready():
                told = self._channel.recv_stderr(4096).decode(errors="replace").strip().splitlines()
                return _plain(told[-1][:300]).rstrip(".")
        return ""

    async def _beside(self, work: Any, *what: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *what)
        except (OSError, EOFError, RuntimeError) as error:
            raise Unreachable(f"The connection to the job's host was lost: {error}.") from None


class Sessions:
    """`cluster` is ours: hosts obey no other's daemon. At most a user attends `most_of_user` sessions,
    and all users together `most_on_host` on a host, at once."""

    def __init__(
        self, hosts: Attending, cluster: str, most_of_user: int = 64, most_on_host: int = 128
    ) -> None:
        self._hosts, self._cluster = hosts, cluster
        self._most_of_user, self._most_on_host = most_of_user, most_on_host
        self._attended: Counter[tuple[str, str]] = Counter()  # (user, host) -> how many

    @asynccontextmanager
    async def attend(
        self, job: Job, host: str, session: str, begin: Mapping[str, Any] | None, user: str
    ) -> AsyncIterator[Attended]:
        """The way to a session of the job on `host` ("" = its first one), which begins if `begin` says how.

        Raises:
            Conflict: the job does not run, or not on that host, or has no such session.
            LimitReached: the user attends too many sessions.
            Unreachable: the host cannot be reached.
        """
        name = place_of(job, host)
        self._enter(user, name)
        try:
            way = Attended()
            try:
                await way.reach(self._hosts.attend, name)
                asked = {"cluster": self._cluster, "job": job.id, "attempt": job.attempt}
                answer = await way.greet({**asked, "session": session, "begin": begin})
                if not answer.get("ok"):
                    raise _refusal(answer)
                yield way
            finally:
                way.close()
        finally:
            self._leave(user, name)

    def _enter(self, user: str, host: str) -> None:
        mine = sum(count for (whose, _), count in self._attended.items() if whose == user)
        if mine >= self._most_of_user:
            raise LimitReached(
                f"No more sessions can be attended: {user} attends {mine} already.", "End one first."
            )
        here = sum(count for (_, where), count in self._attended.items() if where == host)
        mine_here = self._attended[user, host]
        for what, most, taken, own in (
            (f"on {host}", self._most_on_host, here, mine_here),
            ("by this daemon", MOST, self._attended.total(), mine),
        ):
            if taken >= most:
                raise LimitReached(
                    f"No more sessions can be attended {what}: there are {taken} already.", "Try again later."
                )
            if taken >= most - most // 4 and own >= FEW:
                raise LimitReached(
                    f"No more sessions can be attended {what} by {user}, who attends {own}: the last of "
                    f"{most} are kept for users who attend fewer than {FEW}.",
                    "End one first.",
                )
        self._attended[user, host] += 1

    def _leave(self, user: str, host: str) -> None:
        self._attended[user, host] -= 1
        if not self._attended[user, host]:
            del self._attended[user, host]


def place_of(job: Job, host: str) -> str:
    """The host of the job that is meant.

    Raises:
        Conflict: the job does not run, or not there.
    """
    if job.state is not JobState.RUNNING or job.placement is None:
        raise Conflict(f"Job {job.ref} does not run: it is {job.state}.", "`rmx why` says what it waits for.")
    hosts = job.placement.hosts
    if host and host not in hosts:
        raise Conflict(f"Job {job.ref} does not run on {host}: it runs on {', '.join(hosts)}.")
    return host or hosts[0]


def _refusal(answer: Mapping[str, Any]) -> RmError:
    why = str(answer.get("error", "no reason"))
    kinds: dict[Code, type[RmError]] = {Code.BAD_REQUEST: UsageError, Code.NO_SUCH_SESSION: NotFound}
    return kinds.get(Code(str(answer.get("code"))), Conflict)(_plain(why[:1000]))


def _plain(text: str) -> str:
    """What a host says, for somebody's terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
