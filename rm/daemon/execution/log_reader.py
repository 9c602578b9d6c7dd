"""A task's log, wherever it is now: on its host while it runs, at home when it was collected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from rm.arrays import lowest, parse
from rm.core.jobs.actions import Collect
from rm.core.model.job import Job, JobState, Task
from rm.core.model.logs import KeptLog, LogName, LogPiece, LogPlace
from rm.daemon.agents import Agents
from rm.daemon.execution.log_home import content
from rm.errors import Conflict, NotFound, RmError, StoreError, Unreachable
from rm.protocol.attempts import LogPart, Logs
from rm.protocol.codes import Code, code_of

FOLLOW_S = 0.1
REACHED_S = 30.0  # in which a host must answer that has the rest of a log
QUIET_S = 1.0  # between two looks at a log that does not grow
CHUNK_BYTES = 128 * 1024
TAIL_MOST_BYTES = 16 << 20  # searched for the beginning of the last lines
# Parts that a host is asked for at once: it keeps its answers in memory until they are sent, and takes a
# daemon that is far behind with reading for gone.
OF_ONE_USER, IN_ALL = 4, 64
T = TypeVar("T")


class Forgotten(Exception):
    """The host no longer has the log that is being read. `kept`: it discarded it when it was kept."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept


class Source(Protocol):
    """Where the bytes of one log come from."""

    async def size(self) -> int: ...
    async def read(self, offset: int, limit: int) -> bytes: ...


class LogReader:
    """Reads logs for the service.

    Args:
        hosts: the connected agents.
        place: keeps the logs that came home.
        job_of: the newest version of a job.
        records: what became of a job's logs when their hosts forgot them.
        collecting: the collections of an attempt's logs whose outcome is not known.
    """

    def __init__(
        self,
        hosts: Agents,
        place: LogPlace,
        job_of: Callable[[int], Awaitable[Job]],
        records: Callable[[int], Sequence[KeptLog]] = lambda job: (),
        collecting: Callable[[int, int], Sequence[Collect]] = lambda job, attempt: (),
    ) -> None:
        self._hosts = hosts
        self._place = place
        self._job_of = job_of
        self._records = records
        self._collecting = collecting
        # of (host, user), and of (host, "") in all; those that somebody has or waits for
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()

    async def note(self, job_id: int, rank: int, stream: str, attempt: int = 0) -> str:
        """What of the log is missing, as a sentence; "" when nothing is known to be."""
        job = await self._job_of(job_id)
        name = LogName(job_id, attempt or job.attempt, rank, stream)
        record = await self._record(name)
        if record is None or not record.why:
            return ""
        return f"The log of {_called(job, name)} is not complete: {record.why}."

    async def read(
        self,
        job_id: int,
        rank: int,
        stream: str,
        offset: int,
        follow: bool,
        lines: int = 0,
        attempt: int = 0,
        from_attempt: int = 0,
    ) -> AsyncIterator[LogPiece]:
        """The bytes from `offset`, counted from the log's end as it is at the beginning when it is negative;
        or the last `lines`. With `follow` until the task ends, through all attempts; or of one `attempt`.
        `from_attempt`: who follows has read that one up to `offset`, and may have missed the end of it and
        attempts after it.

        Raises:
            NotFound: there is no such job, attempt or task, or its log is known to be lost.
            Conflict: there is no log yet, or the task never ran.
            Unreachable: the log is on a host that does not answer.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + REACHED_S
        while from_attempt and _is_over(await self._job_of(job_id), from_attempt):
            try:
                async for piece in self.read(job_id, rank, stream, offset, False, 0, from_attempt):
                    yield piece
                    offset = piece.offset + len(piece.data)
            except Unreachable:  # a new leader has not reached its hosts yet
                if loop.time() < give_up_s:
                    await asyncio.sleep(FOLLOW_S)
                    continue
            except (NotFound, Conflict):
                pass  # the newest is waited for
            from_attempt, offset = from_attempt + 1, 0
        reading = from_attempt
        while True:
            job = await self._job_of(job_id)
            number = _attempt(job, attempt)
            if reading and number != reading:  # requeued: what follows is another log
                offset = lines = 0
            reading = number
            _refuse_unknown(job, rank)
            if job.array is not None:
                raise Conflict(
                    f"Job {job_id} is a job array: each of its elements has a log of its own.",
                    f"Name one of them, such as {job_id}_{lowest(parse(job.spec.array).mask)}.",
                )
            name = LogName(job_id, number, rank, stream)
            task = _task(job, name)
            current = number == job.attempt and job.occupies
            if number == 0 and job.state.final:
                raise Conflict(f"Job {job.ref} is {job.state} and never ran: there is no log.")
            if (current and (task is None or task.started_us is None)) or (
                job.state is JobState.PENDING and not attempt and (follow or number == 0)
            ):
                if not follow:
                    raise Conflict(f"Job {job.ref} is {job.state}: there is no log yet.")
                await asyncio.sleep(FOLLOW_S)
                continue
            # looked at before the place: a log that is being collected is in one of the two
            host = self._host_of(name)
            if current and task is not None:
                host = task.host
            if host is None or not current:
                kept = Kept(self._place, job, name)
                if await kept.there():
                    offset = await _begin(kept, offset, lines)
                    async for data in _all(kept, offset):
                        yield LogPiece(number, offset, data)
                        offset += len(data)
                    return
                if host is None:
                    await self._explain(job, name)
                    return
            on_host = OnHost(self, job, host or "", name)
            try:
                offset, lines = await _begin(on_host, offset, lines), 0
                async for after, data in self._from_host(on_host, offset, follow and current):
                    offset = after
                    yield LogPiece(number, after - len(data), data)
            except Unreachable:
                if not follow or job.state.final:
                    raise
                await asyncio.sleep(FOLLOW_S)  # cut off for a while; its loss would end the job
                continue
            except Forgotten as forgotten:
                if await Kept(self._place, job, name).there():
                    continue  # collected while we read: the rest is at home
                if forgotten.kept:
                    return  # it was empty
                if not follow or job.state.final:
                    raise NotFound(
                        f"{host} no longer has the log of {_called(job, name)}, and it was never collected."
                    ) from None
                await asyncio.sleep(FOLLOW_S)  # what became of the task will be known soon
                continue
            newest = await self._job_of(job_id)
            if not follow or newest.state.final or (attempt and newest.attempt != attempt):
                return
            await asyncio.sleep(FOLLOW_S)

    def _host_of(self, name: LogName) -> str | None:
        """The host that a log is being collected from."""
        collections = self._collecting(name.job, name.attempt)
        return next((c.host for c in collections if name.rank in c.ranks), None)

    async def _explain(self, job: Job, name: LogName) -> None:
        """There is no such log, neither here nor on a host: an empty one, or one that is missing.

        Raises:
            NotFound, Conflict: why it is missing.
        """
        record = await self._record(name)
        task = _task(job, name)
        if record is not None and record.kept_bytes:
            raise NotFound(
                f"The log of {_called(job, name)} ({record.kept_bytes} bytes) was collected, and is not in "
                f"{self._place.name}.",
                "Has another daemon kept it elsewhere? daemon.log_dir of rm.toml must be the same for all.",
            )
        if record is not None and name.stream == "out":
            raise NotFound(f"The log of {_called(job, name)} is lost: {record.why}.")
        if task is not None and task.started_us is None:
            why = task.note or (job.reason.message if job.reason is not None else "")
            said = f": {why}" if why else "."
            raise Conflict(f"Task {name.rank} of job {job.ref} never started{said}")

    async def _record(self, name: LogName) -> KeptLog | None:
        records = await asyncio.to_thread(self._records, name.job)
        return next((record for record in records if record.name == name), None)

    async def ask_host(self, job: Job, host: str, name: LogName, offset: int, limit: int) -> LogPart:
        request = Logs(
            job=job.id,
            attempt=name.attempt,
            rank=name.rank,
            stream="err" if name.stream == "err" else "out",
            offset=offset,
            limit=limit,
        )
        try:
            async with self._turn(host, job.spec.user, OF_ONE_USER), self._turn(host, "", IN_ALL):
                return await asyncio.wrap_future(self._hosts.call(host, request))
        except RmError as error:
            code = code_of(error)
            if code in (Code.NO_SUCH_ATTEMPT, Code.DISCARDED):
                raise Forgotten(code is Code.DISCARDED) from None
            raise

    def _turn(self, host: str, user: str, at_once: int) -> asyncio.Semaphore:
        turn = self._turns.get((host, user))
        if turn is None:
            turn = self._turns[host, user] = asyncio.Semaphore(at_once)
        return turn

    async def _from_host(self, log: OnHost, offset: int, follow: bool) -> AsyncIterator[tuple[int, bytes]]:
        """Its parts, each with the offset of the next one."""
        pause_s = FOLLOW_S
        while True:
            answer = await log.part(offset, CHUNK_BYTES)
            data = content(answer, log.host)
            offset = answer.offset
            if data:
                pause_s = FOLLOW_S
                yield offset, data
            elif answer.done or not follow:
                return
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(QUIET_S, 1.5 * pause_s)


class OnHost:
    """A log that its host still has."""

    def __init__(self, reader: LogReader, job: Job, host: str, name: LogName) -> None:
        self.host = host
        self._reader, self._job, self._name = reader, job, name

    async def part(self, offset: int, limit: int) -> LogPart:
        return await self._reader.ask_host(self._job, self.host, self._name, offset, limit)

    async def size(self) -> int:
        return (await self.part(0, 0)).size

    async def read(self, offset: int, limit: int) -> bytes:
        """What the host has not kept between the beginning and the end of a long log are zeros here."""
        part = await self.part(offset, limit)
        data = content(part, self.host)
        gap = min(limit, max(0, part.offset - len(data) - offset))
        return bytes(gap) + data[: limit - gap]


class Kept:
    """A log that came home."""

    def __init__(self, place: LogPlace, job: Job, name: LogName) -> None:
        self._place, self._job, self._name = place, job, name

    async def there(self) -> bool:
        return await self._ask(self._place.size, self._name) is not None

    async def size(self) -> int:
        return await self._ask(self._place.size, self._name) or 0

    async def read(self, offset: int, limit: int) -> bytes:
        return await self._ask(self._place.read, self._name, offset, limit)

    async def _ask(self, work: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.to_thread(work, *arguments)
        except OSError as error:
            raise StoreError(
                f"The log of {_called(self._job, self._name)} cannot be read from {self._place.name}: "
                f"{error.strerror or error}."
            ) from None


async def _all(log: Source, offset: int) -> AsyncIterator[bytes]:
    """In parts: a reader that stops reading holds one of them, and no open file."""
    while data := await log.read(offset, CHUNK_BYTES):
        yield data
        offset += len(data)


async def _begin(log: Source, offset: int, lines: int) -> int:
    """The offset of the first byte that is asked for."""
    if lines:
        return await start_of_last_lines(log, lines)
    return max(0, offset + await log.size()) if offset < 0 else offset


async def start_of_last_lines(log: Source, lines: int) -> int:
    """Where the last `lines` begin, as tail(1) counts them: a newline at the very end begins none."""
    end = await log.size()
    begin = end
    while begin > max(0, end - TAIL_MOST_BYTES):
        offset = max(0, begin - CHUNK_BYTES)
        data = await log.read(offset, begin - offset)
        found = len(data) if begin < end else len(data) - 1
        while (found := data.rfind(b"\n", 0, max(found, 0))) >= 0:
            lines -= 1
            if lines == 0:
                return offset + found + 1
        begin = offset
    return begin


def _attempt(job: Job, asked: int) -> int:
    """The attempt that is meant: the newest, unless one is asked for."""
    if asked > job.attempt:
        had = f"has had {job.attempt}" if job.attempt else "has not been started yet"
        raise NotFound(f"Job {job.ref} has no attempt {asked}: it {had}.")
    return asked or job.attempt


def _is_over(job: Job, attempt: int) -> bool:
    """Has another attempt followed it, or will?"""
    return job.attempt > attempt or (job.attempt == attempt and job.state is JobState.PENDING)


def _refuse_unknown(job: Job, rank: int) -> None:
    count = 1 if job.spec.runs_once else len(job.tasks) or job.spec.ntasks
    if not 0 <= rank < count:
        ranks = f"0 to {count - 1}" if count > 1 else "only 0"
        raise NotFound(f"Job {job.ref} has no task {rank}.", f"Its tasks: {ranks}.")


def _task(job: Job, name: LogName) -> Task | None:
    """The task as it is known; nothing is, of an earlier attempt."""
    tasks = job.tasks if name.attempt == job.attempt else ()
    return next((task for task in tasks if task.rank == name.rank), None)


def _called(job: Job, name: LogName) -> str:
    stream = "" if name.stream == "out" else " (standard error)"
    return f"task {name.rank} of job {job.ref}, attempt {name.attempt}{stream}"
