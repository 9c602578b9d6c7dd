"""What an agent writes to its standard error, for the daemon's log: one record a line, and not too many."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rm.adapters.hosts.pace import Pace
from rm.protocol.line import shown

log = logging.getLogger("rm.agent")

LINES = 50  # at once, and then
LINES_PER_S = 1.0
LINE_BYTES = 4_096  # what a longer line has more is left out


class StandardError:
    """Takes any bytes as they come; each line becomes one printable record of the log."""

    def __init__(self, host: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._rest = b""
        self._pace = Pace(LINES, LINES_PER_S, monotonic)
        self._left_out = 0
        self.last = ""  # the newest line

    def take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_BYTES]
        for line in lines:
            self._say(line)

    def end(self) -> None:
        """No more comes: what there is of a last line is one."""
        rest, self._rest = self._rest, b""
        if rest:
            self._say(rest)

    def _say(self, line: bytes) -> None:
        text = shown(line[:LINE_BYTES].decode(errors="replace").strip())
        if not text:
            return
        self.last = text
        if not self._pace.take():
            self._left_out += 1
            return
        if self._left_out:
            log.info("%s: (%d lines are left out here)", self._host, self._left_out)
            self._left_out = 0
        log.info("%s: %s", self._host, text)
