"""Whoever asks for a log gets it, of whichever attempt, or a sentence: never an empty success for one that is
missing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store.log_directory import LogDirectory, log_path
from rm.core.jobs.actions import Collect
from rm.core.model.job import Job, JobState, Task
from rm.core.model.logs import KeptLog, LogName, LogPiece
from rm.daemon.execution.log_reader import CHUNK_BYTES, LogReader
from rm.errors import Conflict, NotFound, RmError, Unreachable
from rm.protocol.attempts import LogPart
from rm.protocol.codes import AgentError, Code
from tests import builders


class World:
    """One job, the logs that its hosts still have, those that came home, and what is recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job = replace(builders.job(3, ntasks=2), attempt=2)
        self.records: list[KeptLog] = []
        self.collecting: list[Collect] = []
        self.on_hosts: dict[tuple[str, LogName], bytes | RmError] = {}
        self.asked: list[str] = []
        place = LogDirectory(root)
        self.reader = LogReader(self, place, self._job, lambda job: self.records, self._collecting)

    async def _job(self, job_id: int) -> Job:
        return self.job

    def _collecting(self, job: int, attempt: int) -> Sequence[Collect]:
        return [c for c in self.collecting if (c.job, c.attempt) == (job, attempt)]

    def ended(self, **changes: Any) -> None:
        tasks = tuple(Task(rank, "h1", started_us=5, ended_us=6, exit_code=0) for rank in (0, 1))
        self.job = replace(self.job, **{"state": JobState.COMPLETED, "tasks": tasks, **changes})

    def keep(self, content: bytes, attempt: int = 2, rank: int = 0) -> None:
        path = log_path(self.root, LogName(3, attempt, rank, "out"))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    def call(self, host: str, request: Any, timeout_s: float = 10) -> Future[Any]:
        self.asked.append(host)
        found = self.on_hosts.get((host, LogName(3, request.attempt, request.rank, request.stream)))
        future: Future[Any] = Future()
        if found is None:
            future.set_exception(AgentError(Code.NO_SUCH_ATTEMPT, "no such attempt"))
        elif isinstance(found, RmError):
            future.set_exception(found)
        else:
            data = found[request.offset : request.offset + request.limit]
            text = base64.b64encode(data).decode()
            part = LogPart(data=text, offset=request.offset + len(data), size=len(found), done=True)
            future.set_result(part)
        return future

    def clock_offset_us(self, name: str) -> int | None:
        return 0

    def read(self, rank: int = 0, attempt: int = 0, lines: int = 0, offset: int = 0) -> bytes:
        async def whole() -> bytes:
            chunks = self.reader.read(3, rank, "out", offset, False, lines, attempt)
            return b"".join([piece.data async for piece in chunks])

        return asyncio.run(whole())

    def note(self, attempt: int = 0) -> str:
        return asyncio.run(self.reader.note(3, 0, "out", attempt))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_each_attempt_is_read_by_its_number_and_the_newest_by_none(world: World) -> None:
    world.ended()
    for attempt in (1, 2):
        world.keep(b"attempt %d\n" % attempt, attempt)
    assert world.read() == world.read(attempt=2) == b"attempt 2\n"
    assert world.read(attempt=1) == b"attempt 1\n"
    with pytest.raises(NotFound, match="Job 3 has no attempt 3: it has had 2"):
        world.read(attempt=3)
    world.job = replace(world.job, state=JobState.PENDING, tasks=())  # requeued
    assert world.read(attempt=1) == b"attempt 1\n"
    assert world.read() == b"attempt 2\n"
    with pytest.raises(NotFound, match="no task 2"):
        world.read(rank=2)


def test_an_element_of_an_array_has_its_users_name_in_every_sentence(world: World) -> None:
    world.ended()
    world.job = replace(world.job, array_job=2, array_task=7)
    with pytest.raises(NotFound, match="Job 2_7 has no attempt 3"):
        world.read(attempt=3)
    with pytest.raises(NotFound, match="Job 2_7 has no task 9"):
        world.read(rank=9)
    world.records = [KeptLog(LogName(3, 2, 0, "out"), why="h1 was removed")]
    with pytest.raises(NotFound, match="The log of task 0 of job 2_7, attempt 2 is lost"):
        world.read()
    assert world.note().startswith("The log of task 0 of job 2_7, attempt 2 is not complete")


def test_an_earlier_attempt_is_read_on_its_host_until_it_is_collected(world: World) -> None:
    world.ended()
    world.collecting = [Collect(3, 1, "h7", (1,))]
    world.on_hosts["h7", LogName(3, 1, 1, "out")] = b"on its host\n"
    assert world.read(rank=1, attempt=1) == b"on its host\n"
    world.on_hosts["h7", LogName(3, 1, 1, "out")] = Unreachable("h7 does not answer.")
    with pytest.raises(Unreachable, match="h7 does not answer"):
        world.read(rank=1, attempt=1)
    world.on_hosts["h7", LogName(3, 1, 1, "out")] = AgentError(Code.DISCARDED, "gone")
    assert world.read(rank=1, attempt=1) == b""  # kept, and there was nothing to keep
    del world.on_hosts["h7", LogName(3, 1, 1, "out")]
    with pytest.raises(NotFound, match="h7 no longer has the log of task 1 of job 3, attempt 1"):
        world.read(rank=1, attempt=1)


def test_an_empty_log_is_no_missing_one(world: World) -> None:
    world.ended()
    assert world.read() == b""
    assert world.asked == []  # the hosts have nothing more to say
    world.records = [KeptLog(LogName(3, 2, 0, "out"), 100, 100)]
    with pytest.raises(NotFound, match=r"\(100 bytes\) was collected, and is not in the directory") as caught:
        world.read()
    assert "daemon.log_dir" in caught.value.hint
    assert caught.value.exit_code == 4
    world.records = [KeptLog(LogName(3, 2, 0, "out"), why="h1 was removed")]
    with pytest.raises(NotFound, match="The log of task 0 of job 3, attempt 2 is lost: h1 was removed"):
        world.read()


def test_a_task_that_never_started_has_no_log_and_says_why(world: World) -> None:
    never = Task(0, "h1", ended_us=6, exit_code=1, note="The output file /x cannot be written on h1.")
    world.ended(state=JobState.FAILED, tasks=(never, replace(never, rank=1)))
    with pytest.raises(Conflict, match="never started: The output file /x cannot be written"):
        world.read()


def test_what_is_missing_of_a_log_is_noted(world: World) -> None:
    world.ended()
    world.keep(b"the end\n")
    assert world.note() == ""
    world.records = [KeptLog(LogName(3, 2, 0, "out"), 100, 8, "its first 92 bytes were not kept")]
    assert world.read() == b"the end\n"
    assert world.note() == (
        "The log of task 0 of job 3, attempt 2 is not complete: its first 92 bytes were not kept."
    )
    assert world.note(attempt=1) == ""


LINES = [
    b"",
    b"\n",
    b"one",
    b"one\n",
    b"one\ntwo",
    b"one\ntwo\n",
    b"\n\n\n",
    b"x" * CHUNK_BYTES + b"\n" + b"y" * (2 * CHUNK_BYTES) + b"\nlast\n",
    b"\n" * (CHUNK_BYTES + 1),
    b"ab\n" * CHUNK_BYTES,
]


@pytest.mark.parametrize("at_home", [True, False])
@pytest.mark.parametrize("content", LINES)
def test_the_last_lines_are_those_of_tail(world: World, content: bytes, at_home: bool) -> None:
    world.ended()
    if at_home:
        world.keep(content)
    else:
        world.collecting = [Collect(3, 2, "h1", (0, 1))]
        world.on_hosts["h1", LogName(3, 2, 0, "out")] = content
    for lines in (1, 2, 3):
        assert world.read(lines=lines) == b"".join(content.splitlines(True)[-lines:])
    assert world.read(offset=-3) == content[-3:]


def test_the_last_lines_of_a_log_that_its_host_has_cut(world: World) -> None:
    """Its host has the first 10 bytes and the last 15; between them is one line without an end."""
    size = 3 * CHUNK_BYTES
    content = b"one\ntwo\nth" + bytes(size - 25) + b"\nfour\nfive\nsix\n"

    def call(host: str, request: Any, timeout_s: float = 10) -> Future[Any]:
        begin = request.offset if request.offset < 10 or request.offset > size - 15 else size - 15
        end = min(begin + request.limit, size) if begin >= size - 15 else min(begin + request.limit, 10)
        text = base64.b64encode(content[begin:end]).decode()
        future: Future[Any] = Future()
        future.set_result(LogPart(data=text, offset=end, size=size, done=True, kept_bytes=25))
        return future

    world.ended()
    world.collecting = [Collect(3, 2, "h1", (0, 1))]
    world.call = call  # type: ignore[method-assign]
    assert world.read(lines=2) == b"five\nsix\n"
    assert world.read(lines=5) == b"two\nth\nfour\nfive\nsix\n"


def test_who_follows_on_gets_the_rest_of_that_attempt_and_all_after_it(world: World) -> None:
    world.ended(attempt=3)
    for attempt in (1, 2, 3):
        world.keep(b"attempt %d\n" % attempt, attempt)

    def follow(offset: int, from_attempt: int) -> list[LogPiece]:
        async def whole() -> list[LogPiece]:
            pieces = world.reader.read(3, 0, "out", offset, True, from_attempt=from_attempt)
            return [piece async for piece in pieces]

        return asyncio.run(whole())

    last = [LogPiece(2, 0, b"attempt 2\n"), LogPiece(3, 0, b"attempt 3\n")]
    assert follow(8, 1) == [LogPiece(1, 8, b"1\n"), *last]
    assert follow(10, 1) == last
    assert follow(2, 3) == [LogPiece(3, 2, b"tempt 3\n")]
    log_path(world.root, LogName(3, 2, 0, "out")).unlink()
    world.records = [KeptLog(LogName(3, 2, 0, "out"), why="h1 was removed")]  # lost: what is there comes
    assert follow(8, 1) == [LogPiece(1, 8, b"1\n"), last[1]]


def test_who_follows_on_waits_for_a_host_that_has_the_rest_of_an_earlier_attempt(world: World) -> None:
    """A leader that has just begun has not reached its hosts yet."""
    world.ended(attempt=2)
    world.keep(b"newest\n", 2)
    world.collecting = [Collect(3, 1, "h7", (0,))]
    name = LogName(3, 1, 0, "out")
    world.on_hosts["h7", name] = Unreachable("h7 does not answer.")

    async def whole() -> list[LogPiece]:
        asyncio.get_running_loop().call_later(0.3, world.on_hosts.__setitem__, ("h7", name), b"older\n")
        return [p async for p in world.reader.read(3, 0, "out", 2, True, from_attempt=1)]

    assert asyncio.run(whole()) == [LogPiece(1, 2, b"der\n"), LogPiece(2, 0, b"newest\n")]
