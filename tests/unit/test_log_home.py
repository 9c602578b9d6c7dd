"""Logs on their way home: from hosts that lie and dawdle, onto a disk that is nearly full."""

import asyncio
import base64
import dataclasses
import resource
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rm.adapters.store.log_directory import LogDirectory, log_path
from rm.core.jobs.actions import Collect
from rm.core.model.job import JobState, Task
from rm.core.model.logs import KeptLog, LogName
from rm.daemon.execution import log_home
from rm.daemon.execution.log_home import CHUNK_BYTES, LogHome, TooSlow
from rm.daemon.execution.log_reader import CHUNK_BYTES as READ_BYTES
from rm.daemon.execution.log_reader import IN_ALL, OF_ONE_USER, LogReader
from rm.errors import Unreachable
from rm.protocol.attempts import LogPart, Logs
from tests import builders

MIB = 1 << 20
ACTION = Collect(7, 1, "h1", (0,))
NAME = LogName(7, 1, 0, "out")


class Host:
    """An agent with one log: `size` it says, and `data(offset, limit)` it sends."""

    def __init__(self, size: int, data: Callable[[int, int], bytes]) -> None:
        self.size = size
        self.data = data
        self.asked: list[Logs] = []
        self.now_s = 0.0
        self.takes_s = 0.0
        self.lost_after = -1

    def call(self, name: str, request: Any, timeout_s: float = 10) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append(request)
        self.now_s += self.takes_s
        if len(self.asked) == self.lost_after:
            future.set_exception(Unreachable("lost"))
            return future
        data = self.data(request.offset, request.limit)
        text = base64.b64encode(data).decode()
        future.set_result(LogPart(data=text, offset=request.offset + len(data), size=self.size, done=True))
        return future

    def clock_offset_us(self, name: str) -> int | None:
        return 0

    @property
    def sent(self) -> int:
        return sum(request.limit for request in self.asked)


def home(host: Host, folder: Path, most: int = 4 * MIB, free: int = 1 << 40, reserve: int = 0) -> LogHome:
    return LogHome(host, LogDirectory(folder), folder, most, reserve, lambda: host.now_s, lambda _: free)


def kept(keeper: LogHome) -> bytes:
    """What is kept of the one log, now that it was fetched."""
    keeper.keep(ACTION)
    return keeper.place.read(NAME, 0, 1 << 30)


def of(content: bytes) -> Host:
    return Host(len(content), lambda offset, limit: content[offset : offset + limit])


def test_a_log_comes_home_once_and_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    host = of(content)
    keeper = home(host, tmp_path)
    for _ in range(2):
        assert keeper.fetch(ACTION, 0, "out") == ""
        assert kept(keeper) == content
    assert len(host.asked) == 3
    keeper.finished(ACTION)
    keeper.fetch(ACTION, 0, "out")  # of another life with the same numbers
    assert kept(keeper) == content
    assert len(host.asked) == 6
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["0.out"]


def test_what_a_full_disk_took_of_a_part_is_not_kept_twice(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    keeper = home(of(content), tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK_BYTES + 1_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            keeper.fetch(ACTION, 0, "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    keeper.fetch(ACTION, 0, "out")
    assert kept(keeper) == content


@pytest.mark.parametrize("left", [b"", b"the beginning\n"])
def test_a_log_whose_end_a_crash_of_its_host_took_says_so(left: bytes, tmp_path: Path) -> None:
    class Crashed(Host):
        def call(self, name: str, request: Any, timeout_s: float = 10) -> Future[Any]:
            future: Future[Any] = Future()
            part = super().call(name, request).result()
            future.set_result(replace(part, kept_bytes=len(left), lacks_bytes=600))
            return future

    keeper = home(Crashed(len(left), lambda offset, limit: left[offset : offset + limit]), tmp_path)
    crash = "last 600 bytes {} missing: h1 crashed before its disk had them"
    assert keeper.fetch(ACTION, 0, "out") == "the " + crash.format("of a log are")
    assert keeper.keep(ACTION) == (KeptLog(NAME, len(left) + 600, len(left), "its " + crash.format("are")),)
    assert keeper.place.read(NAME, 0, 1 << 30) == left


def test_of_a_log_that_was_cut_on_its_host_all_that_is_left_comes_home(tmp_path: Path) -> None:
    """The host has the first 1,000 bytes and the last 2 MiB of 1 TiB."""
    size = 1 << 40
    tail = size - 2 * MIB

    def data(offset: int, limit: int) -> bytes:
        return (
            b"a" * min(limit, 1_000 - offset)
            if offset < 1_000
            else b"z" * min(limit, size - max(tail, offset))
        )

    class Cut(Host):
        def call(self, name: str, request: Any, timeout_s: float = 10) -> Future[Any]:
            part = super().call(name, request).result()
            begin = request.offset if request.offset < 1_000 else max(tail, request.offset)
            length = len(base64.b64decode(part.data))
            future: Future[Any] = Future()
            future.set_result(replace(part, offset=begin + length, kept_bytes=2 * MIB + 1_000))
            return future

    host = Cut(size, data)
    keeper = home(host, tmp_path)
    assert keeper.fetch(ACTION, 0, "out") == ""
    assert kept(keeper) == b"a" * 1_000 + b"z" * 2 * MIB
    assert len(host.asked) == 9
    shorter = home(host, tmp_path / "shorter", most=MIB)  # than what the host has
    shorter.fetch(ACTION, 0, "out")
    assert kept(shorter) == b"z" * MIB


def test_an_empty_log_leaves_no_file(tmp_path: Path) -> None:
    assert home(of(b""), tmp_path).fetch(ACTION, 0, "out") == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 6 * MIB, 8 << 40])
def test_a_host_that_never_ends_a_log_fills_no_disk(tmp_path: Path, size: int) -> None:
    host = Host(size, lambda offset, limit: b"x" * (limit + 500_000))
    keeper = home(host, tmp_path)
    keeper.fetch(ACTION, 0, "out")
    assert len(kept(keeper)) == min(size, 4 * MIB)
    assert host.sent <= 4 * MIB + 2 * CHUNK_BYTES


def test_of_a_long_log_the_newest_part_comes(tmp_path: Path) -> None:
    content = b"old" * 2 * MIB + b"new" * MIB
    keeper = home(of(content), tmp_path, most=MIB)
    assert keeper.fetch(ACTION, 0, "out") == ""  # as configured: nothing to tell
    assert kept(keeper) == content[-MIB:]


def test_one_log_takes_a_part_of_what_is_free_and_says_so_once(tmp_path: Path) -> None:
    keeper = home(of(b"x" * 2 * MIB), tmp_path, free=20 * MIB, reserve=4 * MIB)
    assert keeper.fetch(ACTION, 0, "out") == (
        "only the last 1048576 bytes of a log were kept: the daemon's disk is nearly full"
    )
    assert keeper.fetch(ACTION, 0, "out") == ""
    assert len(kept(keeper)) == MIB


def test_what_is_reserved_of_the_disk_is_left(tmp_path: Path) -> None:
    keeper = home(of(b"x" * 100), tmp_path, free=4 * MIB, reserve=4 * MIB)
    with pytest.raises(OSError, match="log_reserve_mb"):
        keeper.fetch(ACTION, 0, "out")


def test_a_slow_log_gives_way_goes_on_where_it_was_and_ends(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4 * 4096
    host = of(content)
    host.takes_s = 12.0
    keeper = home(host, tmp_path)
    tries = 0
    while True:
        tries += 1
        try:
            assert keeper.fetch(ACTION, 0, "out") == ""
            break
        except TooSlow:
            assert keeper.place.size(NAME) is None
    assert tries > 2
    assert host.sent == len(content)  # nothing twice
    assert kept(keeper) == content


def test_a_host_that_sends_a_byte_at_a_time_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    host = Host(4 * MIB, lambda offset, limit: b"x")
    host.takes_s = 29.0
    keeper = home(host, tmp_path)
    for _ in range(1000):
        try:
            note = keeper.fetch(ACTION, 0, "out")
            break
        except TooSlow:
            continue
    assert note == "the end of a log is missing: it came too slowly from h1"
    assert len(kept(keeper)) == len(host.asked)
    assert host.now_s < log_home.PATIENCE_S + 4 * MIB / log_home.SLOWEST_BYTES_PER_S + 60


def test_a_log_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    content = b"0123456789" * 100_000
    host = of(content)
    host.lost_after = 3
    keeper = home(host, tmp_path)
    with pytest.raises(Unreachable):
        keeper.fetch(ACTION, 0, "out")
    keeper.fetch(ACTION, 0, "out")
    assert kept(keeper) == content


# -- and from there to its reader


def test_readers_that_stop_reading_hold_a_part_of_the_log_each(tmp_path: Path) -> None:
    log = log_path(tmp_path, LogName(1, 1, 0, "out"))
    log.parent.mkdir()
    with log.open("wb") as file:
        file.truncate(64 * MIB)
    job = dataclasses.replace(builders.job(1, state=JobState.COMPLETED), attempt=1)

    async def job_of(_: int) -> Any:
        return job

    async def main() -> int:
        reader = LogReader(of(b""), LogDirectory(tmp_path), job_of)
        readers = [reader.read(1, 0, "out", 0, False) for _ in range(40)]
        tracemalloc.start()
        try:
            parts = [await anext(one) for one in readers]
            assert {len(part.data) for part in parts} == {READ_BYTES}
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        rest = [len(part.data) async for part in readers[0]]
        assert READ_BYTES + sum(rest) == 64 * MIB
        assert [part.data async for part in reader.read(1, 0, "out", 64 * MIB - 5, False)] == [b"\0" * 5]
        return most

    assert asyncio.run(main()) < 40 * 2 * READ_BYTES


class Late(Host):
    """An agent that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(1, lambda offset, limit: b"x"[offset:])
        self.owed: list[tuple[Any, Future[Any]]] = []
        self.most = 0

    def call(self, name: str, request: Any, timeout_s: float = 10) -> Future[Any]:
        future: Future[Any] = Future()
        self.owed.append((request, future))
        self.most = max(self.most, len(self.owed))
        return future

    def pay(self) -> None:
        owed, self.owed = self.owed, []
        for request, future in owed:
            future.set_result(super().call("h1", request).result())


@pytest.mark.parametrize(("users", "most"), [(1, OF_ONE_USER), (100, IN_ALL)])
def test_a_host_is_asked_for_few_parts_at_once_however_many_read(
    tmp_path: Path, users: int, most: int
) -> None:
    host, readers = Late(), 400

    async def job_of(number: int) -> Any:
        task = Task(0, "h1", started_us=1)
        job = builders.job(number, state=JobState.RUNNING, tasks=(task,), user=f"u{number % users}")
        return dataclasses.replace(job, attempt=1)

    async def main() -> list[bytes]:
        reader = LogReader(host, LogDirectory(tmp_path), job_of)

        async def whole(number: int) -> bytes:
            return b"".join([part.data async for part in reader.read(number, 0, "out", 0, False)])

        tasks = [asyncio.ensure_future(whole(number)) for number in range(1, readers + 1)]
        while not all(task.done() for task in tasks):
            for _ in range(10):
                await asyncio.sleep(0)
            host.pay()
        return [task.result() for task in tasks]

    assert asyncio.run(main()) == [b"x"] * readers
    assert host.most == most
