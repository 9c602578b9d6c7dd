"""Requests that are not HTTP, in the daemon's log: one short record each, and few from any sender."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError

from rm.adapters.hosts.pace import Pace
from rm.protocol.line import shown

AT_ONCE = 20  # records, and then
PER_S = 0.1
server_log = logging.getLogger("aiohttp.server")


class Malformed(logging.Filter):
    """aiohttp writes a traceback for each, with what was sent in it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._pace = Pace(AT_ONCE, PER_S, monotonic)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        if not self._pace.take():
            self._left_out += 1
            return False
        said = shown(" ".join(error.message.split()))
        more = f" ({self._left_out} more are left out here)" if self._left_out else ""
        record.msg, record.args = "a request is no HTTP: %s%s", (said, more)
        record.exc_info, self._left_out = None, 0
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


malformed = Malformed()
