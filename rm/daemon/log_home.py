"""Where collected logs lie, and how they come there."""

from __future__ import annotations

import base64
import errno
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rm.core.actions import Collect
from rm.daemon.agents import Agents
from rm.errors import RmError, Unreachable
from rm.protocol.attempts import LogPart, Logs, Stream
from rm.protocol.codes import Code, code_of

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
CALL_TIMEOUT_S = 30.0
TURN_S = 30.0  # of one log, then it is others' turn
PATIENCE_S = 3600.0  # with one log in all, and more for a long one:
SLOWEST_BYTES_PER_S = 16 * 1024
SHARE_OF_ROOM = 16  # one log takes at most so great a part of what is free
# What a log may be refused for without making the others, and the end of the attempt, wait for it.
NO_LOG = frozenset({Code.NO_LOG, Code.NO_SUCH_TASK})


class TooSlow(RmError):
    """A log has not come home in its time: what came is kept, and the rest is fetched later."""


@dataclass(slots=True)
class Part:
    """A log that is coming home: the bytes from `offset` to `end` are missing, of which the host has `left`
    at most, and come until `until_s`."""

    offset: int
    end: int
    left: int
    until_s: float
    note: str = ""


class LogHome:
    """Brings logs home, as much of each as `max_bytes` and the disk allow: the newest part of a longer one.

    What a host has not kept of a log (`LogPart.kept_bytes`) is left out; a line of the log says so.

    `reserve_bytes` of the disk are never taken, and what lies above them is not given to one log. A host is
    trusted with neither the size that it says nor its pace.
    """

    def __init__(
        self,
        agents: Agents,
        logs: Path,
        max_bytes: int,
        reserve_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._hosts = agents
        self._logs = logs
        self._max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._free_bytes = free_bytes
        self._parts: dict[Path, Part] = {}

    def path(self, action: Collect, rank: int, stream: str) -> Path:
        return log_path(self._logs, action.job, action.attempt, rank, stream)

    def fetch(self, action: Collect, rank: int, stream: Stream) -> str:
        """Bring one log home; waits for the host. An empty one leaves no file. The answer is a sentence if
        less of it came than should. What came already is not fetched again until `finished`.

        Raises:
            TooSlow: some of it is to be fetched later.
            OSError: the disk takes no logs.
        """
        path = self.path(action, rank, stream)
        try:
            part = self._parts.get(path) or self._begin(action, rank, stream, path)
            if part.offset < part.end:
                self._go_on(action, rank, stream, part, path)
        except RmError as error:
            if code_of(error) not in NO_LOG:
                raise
            log.warning("no %s of task %d of job %d: %s", stream, rank, action.job, error)
            if path not in self._parts:
                return ""
            part = self._parts[path]  # it was taken away meanwhile: what came is kept
        coming = coming_to(path)
        if coming.exists():
            with coming.open("ab") as file:
                os.fsync(file.fileno())  # its copy on the host is about to be discarded
            coming.replace(path)
            sync(path.parent)
        part.end = part.offset
        note, part.note = part.note, ""  # said once
        return note

    def finished(self, action: Collect) -> None:
        """The host has forgotten the attempt."""
        for rank in action.ranks:
            for stream in ("out", "err"):
                self._parts.pop(self.path(action, rank, stream), None)

    def _begin(self, action: Collect, rank: int, stream: Stream, path: Path) -> Part:
        answer = self._ask(action, rank, stream, 0, CHUNK_BYTES)
        size, room = answer.size, self._room_bytes()
        most = min(self._max_bytes, room // SHARE_OF_ROOM)
        kept = size if answer.kept_bytes is None else min(size, answer.kept_bytes)
        start = 0 if kept <= most else size - most
        left = min(kept, most)
        part = Part(start, size, left, self._clock() + PATIENCE_S + left / SLOWEST_BYTES_PER_S)
        if most < min(kept, self._max_bytes):
            part.note = f"only the last {most} bytes of a log were kept: the daemon's disk is nearly full"
        if start < size:
            path.parent.mkdir(parents=True, exist_ok=True)
            coming_to(path).unlink(missing_ok=True)
            if start == 0:
                self._take(part, answer, action.host, path)
        self._parts[path] = part
        return part

    def _take(self, part: Part, answer: LogPart, host: str, path: Path) -> None:
        data = content(answer, host)[: min(part.left, part.end - part.offset)]
        with coming_to(path).open("ab") as file:
            file.write(data)
        part.left -= len(data)
        part.offset = max(part.offset + len(data), answer.offset)
        if not data or not part.left:
            part.end = part.offset  # it has become shorter, or the host says more than it had

    def _go_on(self, action: Collect, rank: int, stream: Stream, part: Part, path: Path) -> None:
        turn_s = self._clock() + TURN_S
        while part.offset < part.end:
            if self._clock() > part.until_s:
                part.note = f"the end of a log is missing: it came too slowly from {action.host}"
                return
            if self._clock() > turn_s:
                raise TooSlow(f"{action.host} has not sent a log within {TURN_S:g} s.")
            self._room_bytes()
            limit = min(CHUNK_BYTES, part.left, part.end - part.offset)
            answer = self._ask(action, rank, stream, part.offset, limit)
            self._take(part, answer, action.host, path)

    def _room_bytes(self) -> int:
        """What logs may still take of the disk."""
        room = self._free_bytes(self._logs) - self._reserve_bytes
        if room <= 0:
            raise OSError(errno.ENOSPC, "logs leave limits.log_reserve_mb of the daemon's disk free")
        return room

    def _ask(self, action: Collect, rank: int, stream: Stream, offset: int, limit: int) -> LogPart:
        request = Logs(
            job=action.job, attempt=action.attempt, rank=rank, stream=stream, offset=offset, limit=limit
        )
        return self._hosts.call(action.host, request, CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)


def coming_to(path: Path) -> Path:
    """Where a log lies that is not home in full."""
    return path.with_name(path.name + ".part")


def sync(folder: Path) -> None:
    """Names of files in the folder are on the disk, too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def content(part: LogPart, host: str) -> bytes:
    """The bytes of a part of a log.

    Raises:
        Unreachable: what the host sent is no base64.
    """
    try:
        return base64.b64decode(part.data, validate=True)
    except ValueError:
        raise Unreachable(f"{host} sent a part of a log that cannot be read.") from None


def log_path(logs: Path, job: int, attempt: int, rank: int, stream: str) -> Path:
    """Where a collected log lies."""
    return logs / f"{job}.{attempt}" / f"{rank}.{stream}"
