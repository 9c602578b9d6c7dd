"""How logs come home: from hosts that are trusted with nothing, into the place that keeps them."""

from __future__ import annotations

import base64
import errno
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rm.core.jobs.actions import Collect
from rm.core.model.logs import KeptLog, LogName, LogPlace
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
STREAMS: tuple[Stream, ...] = ("out", "err")
# What a log may be refused for without making the others, and the end of the attempt, wait for it.
NO_LOG = frozenset({Code.NO_LOG, Code.NO_SUCH_TASK})


class TooSlow(RmError):
    """A log has not come home in its time: what came is kept, and the rest is fetched later."""


@dataclass(slots=True)
class Part:
    """A log that is coming home: the bytes from `offset` to `end` are missing, of which the host has `left`
    at most, and come until `until_s`. `size` is how long it was, `came` how many bytes came."""

    offset: int
    end: int
    left: int
    until_s: float
    size: int = 0
    came: int = 0
    note: str = ""  # for the job's story
    why: str = ""  # for readers of the log: what of it is missing
    kept: bool = False


class LogHome:
    """Brings logs home, as much of each as `max_bytes` and the disk allow: the newest part of a longer one.

    What a host has not kept of a log (`LogPart.kept_bytes`) is left out; a line of the log says so.

    `reserve_bytes` of the disk of `gathered`, where they are gathered, are never taken, and what lies above
    them is not given to one log. A host is trusted with neither the size that it says nor its pace.
    """

    def __init__(
        self,
        agents: Agents,
        place: LogPlace,
        gathered: Path,
        max_bytes: int,
        reserve_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._hosts = agents
        self.place = place
        self._gathered = gathered
        self._max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._free_bytes = free_bytes
        self._parts: dict[LogName, Part] = {}

    def fetch(self, action: Collect, rank: int, stream: Stream) -> str:
        """Gather one log; waits for the host. The answer is a sentence if less of it came than should.
        What came already is not fetched again until `finished`.

        Raises:
            TooSlow: some of it is to be fetched later.
            OSError: the disk takes no logs.
        """
        name = LogName(action.job, action.attempt, rank, stream)
        try:
            part = self._parts.get(name) or self._begin(action, name)
            if part.offset < part.end:
                self._go_on(action, name, part)
        except RmError as error:
            if code_of(error) not in NO_LOG:
                raise
            log.warning("no %s of task %d of job %d: %s", stream, rank, action.job, error)
            if name not in self._parts:  # nobody asks for it again
                self._parts[name] = Part(0, 0, 0, 0.0, kept=True, why=str(error))
                return f"the log of task {rank} could not be collected: {error}"
            part = self._parts[name]  # it was taken away meanwhile: what came is kept
        part.end = part.offset
        note, part.note = part.note, ""  # said once
        return note

    def keep(self, action: Collect) -> tuple[KeptLog, ...]:
        """What became of the action's logs, now that all were fetched: those that hold anything are kept,
        and durable, on return. Then the host may forget them.

        Raises:
            OSError, StoreError: they cannot be kept now.
        """
        mine = [name for name in names(action) if name in self._parts]
        self.place.keep([n for n in mine if not self._parts[n].kept and self.place.coming(n).exists()])
        for name in mine:
            self._parts[name].kept = True
        return tuple(
            KeptLog(name, part.size, part.came, part.why)
            for name in mine
            if (part := self._parts[name]).size or part.why
        )

    def found(self, action: Collect, why_not: str = "") -> tuple[KeptLog, ...]:
        """What is recorded when the host has forgotten the attempt already: what is kept was all there was;
        `why_not` is why there may be more that nobody will ever have."""
        records = []
        for name in names(action):
            size = self.place.size(name)
            if size is not None:
                records.append(KeptLog(name, size, size))
            elif why_not and name.stream == "out":
                records.append(KeptLog(name, why=why_not))
        return tuple(records)

    def finished(self, action: Collect) -> None:
        """The host has forgotten the attempt."""
        for name in names(action):
            self._parts.pop(name, None)

    def _begin(self, action: Collect, name: LogName) -> Part:
        answer = self._ask(action.host, name, 0, CHUNK_BYTES)
        size, room = answer.size, self._room_bytes()
        most = min(self._max_bytes, room // SHARE_OF_ROOM)
        kept = size if answer.kept_bytes is None else min(size, answer.kept_bytes)
        start = 0 if kept <= most else size - most
        left = min(kept, most)
        part = Part(start, size, left, self._clock() + PATIENCE_S + left / SLOWEST_BYTES_PER_S, size)
        if start:
            which = "the daemon's disk is nearly full" if most < self._max_bytes else "jobs.max_log_bytes"
            part.why = f"its first {start} bytes were not kept ({which})"
        elif kept < size:
            part.why = f"{size - kept} bytes between its beginning and its end were not kept on {action.host}"
        if answer.lacks_bytes:
            last = f"last {answer.lacks_bytes} bytes"
            crash = f"missing: {action.host} crashed before its disk had them"
            part.size += answer.lacks_bytes
            part.why = "; ".join(filter(None, (part.why, f"its {last} are {crash}")))
            part.note = f"the {last} of a log are {crash}"
        elif most < min(kept, self._max_bytes):
            part.note = f"only the last {most} bytes of a log were kept: the daemon's disk is nearly full"
        if start < size:
            coming = self.place.coming(name)
            coming.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            coming.unlink(missing_ok=True)
            if start == 0:
                self._take(part, answer, action.host, name)
        self._parts[name] = part
        return part

    def _take(self, part: Part, answer: LogPart, host: str, name: LogName) -> None:
        data = content(answer, host)[: min(part.left, part.end - part.offset)]
        with self.place.coming(name).open("ab") as file:
            file.truncate(part.came)  # the disk may have taken a piece before it refused the rest
            file.write(data)
        part.left -= len(data)
        part.came += len(data)
        part.offset = max(part.offset + len(data), answer.offset)
        if not data and part.offset < part.end:
            part.why = part.why or "its end is missing: the file became shorter while it was collected"
        if not data or not part.left:
            part.end = part.offset  # it has become shorter, or the host says more than it had

    def _go_on(self, action: Collect, name: LogName, part: Part) -> None:
        turn_s = self._clock() + TURN_S
        while part.offset < part.end:
            if self._clock() > part.until_s:
                part.note = f"the end of a log is missing: it came too slowly from {action.host}"
                part.why = f"its end is missing: it came too slowly from {action.host}"
                return
            if self._clock() > turn_s:
                raise TooSlow(f"{action.host} has not sent a log within {TURN_S:g} s.")
            self._room_bytes()
            limit = min(CHUNK_BYTES, part.left, part.end - part.offset)
            answer = self._ask(action.host, name, part.offset, limit)
            self._take(part, answer, action.host, name)

    def _room_bytes(self) -> int:
        """What logs may still take of the disk."""
        room = self._free_bytes(self._gathered) - self._reserve_bytes
        if room <= 0:
            raise OSError(errno.ENOSPC, "logs leave limits.log_reserve_mb of the daemon's disk free")
        return room

    def _ask(self, host: str, name: LogName, offset: int, limit: int) -> LogPart:
        stream: Stream = "err" if name.stream == "err" else "out"
        request = Logs(
            job=name.job, attempt=name.attempt, rank=name.rank, stream=stream, offset=offset, limit=limit
        )
        return self._hosts.call(host, request, CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)


def streams(action: Collect) -> tuple[Stream, ...]:
    """Those of a task that its host may have files of."""
    return STREAMS if action.errors else STREAMS[:1]


def names(action: Collect) -> Iterator[LogName]:
    """The logs that the action collects."""
    for rank in action.ranks:
        for stream in streams(action):
            yield LogName(action.job, action.attempt, rank, stream)


def content(part: LogPart, host: str) -> bytes:
    """The bytes of a part of a log.

    Raises:
        Unreachable: what the host sent is not base64.
    """
    try:
        return base64.b64decode(part.data, validate=True)
    except ValueError:
        raise Unreachable(f"{host} sent a part of a log that cannot be read.") from None
