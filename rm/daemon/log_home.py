"""Where collected logs lie, and how they come there."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

from rm.core.actions import Collect
from rm.daemon.agents import Agents
from rm.errors import RmError, Unreachable
from rm.protocol.attempts import LogPart, Logs, Stream
from rm.protocol.codes import Code, code_of

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
CALL_TIMEOUT_S = 30.0
# What a log may be refused for without making the others, and the end of the attempt, wait for it.
NO_LOG = frozenset({Code.NO_LOG, Code.NO_SUCH_TASK})


class LogHome:
    """`max_bytes` of each log come home; the newest part of a longer one."""

    def __init__(self, agents: Agents, logs: Path, max_bytes: int) -> None:
        self._hosts = agents
        self._logs = logs
        self._max_bytes = max_bytes

    def path(self, action: Collect, rank: int, stream: str) -> Path:
        return log_path(self._logs, action.job, action.attempt, rank, stream)

    def fetch(self, action: Collect, rank: int, stream: Stream) -> None:
        """Bring one log home whole, or not at all; waits for the host. An empty one leaves no file."""
        path = self.path(action, rank, stream)
        offset, chunks = 0, 0
        part = path.with_suffix(".part")
        while True:
            try:
                request = Logs(
                    job=action.job,
                    attempt=action.attempt,
                    rank=rank,
                    stream=stream,
                    offset=offset,
                    limit=CHUNK_BYTES,
                )
                answer = self._hosts.call(action.host, request, CALL_TIMEOUT_S).result(CALL_TIMEOUT_S)
            except RmError as error:
                if code_of(error) not in NO_LOG:
                    raise
                log.warning("no %s of task %d of job %d: %s", stream, rank, action.job, error)
                break
            if offset == 0 and answer.size > self._max_bytes:
                offset = answer.size - self._max_bytes
                continue
            data = content(answer, action.host)
            if not data:
                break
            if chunks == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab" if chunks else "wb") as file:
                file.write(data)
            offset, chunks = answer.offset, chunks + 1
        if chunks:
            part.replace(path)


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
