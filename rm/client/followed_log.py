"""A task's log that is followed while it grows, over the ends of daemons: no byte is lost or comes twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rm.client.connection import PAUSE_S, Connection, Path
from rm.client.failure import Interrupted

SILENT_S = 60.0  # the daemon says every 10 s that it is there


def followed(
    connection: Connection, path: Path, query: Mapping[str, Any], on_note: Callable[[str], None]
) -> Iterator[bytes]:
    """What the daemon has at `path`, until it ends. The `query` asks for pieces.

    Raises:
        RmError: the daemon's own, or no daemon has gone on with it for as long as the connection is patient.
    """
    asked = dict(query)
    since: float | None = None  # when nothing has come any more
    told: set[str] = set()

    def note(words: str) -> None:
        """The next daemon may remark what one before it did."""
        if words not in told:
            told.add(words)
            on_note(words)

    while True:
        try:
            chunks = connection.stream(*path, _note=note, _again=True, _within_s=SILENT_S, **asked)
            for attempt, offset, data in _pieces(chunks):
                since = None
                if data:
                    asked |= {"offset": offset + len(data), "tail": None, "lines": None}
                    asked |= {} if query["attempt"] else {"from_attempt": attempt}
                    yield data
            return
        except Interrupted:
            now = time.monotonic()
            since = now if since is None else since
            if now - since > connection.patience_s:
                raise
            time.sleep(PAUSE_S)


def _pieces(chunks: Iterator[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Each with its attempt and its offset, when it is whole."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        while (end := rest.find(b"\n")) >= 0:
            attempt, offset, size = map(int, rest[:end].split())
            begin = end + 1
            if len(rest) < begin + size:
                break
            yield attempt, offset, rest[begin : begin + size]
            rest = rest[begin + size :]
