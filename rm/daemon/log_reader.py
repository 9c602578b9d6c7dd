"""A task's log, wherever it is now: on its host while it runs, at home when it was collected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from weakref import WeakValueDictionary

from rm.core.job import Job, JobState
from rm.daemon.agents import Agents
from rm.daemon.log_home import content, log_path
from rm.errors import Conflict, NotFound, RmError, Unreachable
from rm.protocol.attempts import LogPart, Logs
from rm.protocol.codes import Code, code_of

FOLLOW_S = 0.1
QUIET_S = 1.0  # between two looks at a log that does not grow
CHUNK_BYTES = 128 * 1024
# Parts that a host is asked for at once: it keeps its answers in memory until they are sent, and takes a
# daemon that is far behind with reading for gone.
OF_ONE_USER, IN_ALL = 4, 64


class AgentForgot(Exception):
    """A host no longer has the log that is being read."""


class LogReader:
    """`job_of` answers with the newest version of a job. A negative offset counts from the log's end as it is
    at the beginning."""

    def __init__(self, hosts: Agents, logs: Path, job_of: Callable[[int], Awaitable[Job]]) -> None:
        self._hosts = hosts
        self._logs = logs
        self._job_of = job_of
        # of (host, user), and of (host, "") in all; those that somebody has or waits for
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()

    async def read(
        self, job_id: int, rank: int, stream: str, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        attempt, gone = 0, False
        while True:
            job = await self._job_of(job_id)
            if attempt and job.attempt != attempt:  # requeued: what follows is another log
                offset, gone = 0, False
            attempt = job.attempt
            task = next((t for t in job.tasks if t.rank == rank), None)
            if task is None and job.tasks:
                ranks = f"0 to {len(job.tasks) - 1}" if len(job.tasks) > 1 else "only 0"
                raise NotFound(f"Job {job_id} has no task {rank}.", f"Its tasks: {ranks}.")
            home = log_path(self._logs, job_id, job.attempt, rank, stream)
            if home.exists() and not (follow and job.state is JobState.PENDING):
                async for data in _at_home(home, offset):
                    yield data
                return
            if task is None and job.state.final:
                if attempt:
                    return  # it was requeued, and ended before it ran again
                raise Conflict(f"Job {job_id} is {job.state} and never ran: there is no log.")
            if task is None or (task.started_us is None and not job.state.final):
                if not follow:
                    raise Conflict(f"Job {job_id} is {job.state}: there is no log yet.")
                await asyncio.sleep(FOLLOW_S)
                continue
            if task.started_us is None or gone:
                return
            try:
                if offset < 0:
                    size = (await self._ask_host(job, task.host, rank, stream, 0, 0)).size
                    offset = max(0, offset + size)
                parts = self._logs_on_host(job, task.host, rank, stream, offset, follow)
                async for after, data in parts:
                    offset = after
                    yield data
            except Unreachable:
                if not follow or job.state.final:
                    raise
                await asyncio.sleep(FOLLOW_S)  # cut off for a while; its loss would end the job
                continue
            except AgentForgot:
                gone = True  # collected while we read: the rest is at home, unless there is none
                continue
            if not follow or (await self._job_of(job_id)).state.final:
                return
            await asyncio.sleep(FOLLOW_S)

    async def _ask_host(
        self, job: Job, host: str, rank: int, stream: str, offset: int, limit: int
    ) -> LogPart:
        request = Logs(
            job=job.id,
            attempt=job.attempt,
            rank=rank,
            stream="err" if stream == "err" else "out",
            offset=offset,
            limit=limit,
        )
        try:
            async with self._turn(host, job.spec.user, OF_ONE_USER), self._turn(host, "", IN_ALL):
                return await asyncio.wrap_future(self._hosts.call(host, request))
        except RmError as error:
            if code_of(error) is Code.NO_SUCH_ATTEMPT:
                raise AgentForgot from None
            raise

    def _turn(self, host: str, user: str, at_once: int) -> asyncio.Semaphore:
        turn = self._turns.get((host, user))
        if turn is None:
            turn = self._turns[host, user] = asyncio.Semaphore(at_once)
        return turn

    async def _logs_on_host(
        self, job: Job, host: str, rank: int, stream: str, offset: int, follow: bool
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Its parts, each with the offset of the next one."""
        pause_s = FOLLOW_S
        while True:
            answer = await self._ask_host(job, host, rank, stream, offset, CHUNK_BYTES)
            data = content(answer, host)
            offset = answer.offset
            if data:
                pause_s = FOLLOW_S
                yield offset, data
            elif answer.done or not follow:
                return
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(QUIET_S, 1.5 * pause_s)


async def _at_home(path: Path, offset: int) -> AsyncIterator[bytes]:
    """In parts: a reader that stops reading holds one of them, and no open file."""
    if offset < 0:
        offset = max(0, offset + await asyncio.to_thread(_size, path))
    while data := await asyncio.to_thread(_read_part, path, offset):
        yield data
        offset += len(data)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_part(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)
    except FileNotFoundError:  # forgotten while it was read
        return b""
