"""The process of one run of a playbook: its orders go in, lines about what happens come out.

The orders hold secrets: they go to standard input, never to a command line, the environment or a file. While
the daemon holds standard input open, the run goes on; when it is closed, also since the daemon has ended, the
process breaks the run off.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

log = logging.getLogger(__name__)
LINE_MOST = 8 << 20  # bytes
AHEAD_MOST = 100  # lines that wait to be read: then the run waits, too
STOP_S = 30.0  # for a process that is to break its run off


class Process:
    """`lines` yields JSON objects, None at their end. Raises OSError where it cannot be started."""

    def __init__(self, command: Sequence[str], orders: Mapping[str, Any]) -> None:
        self._popen = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the daemon's terminal is the daemon's
        )  # fmt: skip
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue(AHEAD_MOST)
        self._stopping = threading.Lock()
        threading.Thread(target=self._read, name="playbook lines", daemon=True).start()
        assert self._popen.stdin is not None
        with suppress(OSError):  # it has ended already: so do its lines
            # what YAML reads as a date goes as its text, as the report shows it
            self._popen.stdin.write(json.dumps(orders, default=str).encode() + b"\n")
            self._popen.stdin.flush()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with suppress(OSError, ValueError), self._popen.stdout as said:
            while line := said.readline(LINE_MOST):
                try:
                    found = json.loads(line)
                except ValueError:
                    log.warning("a run of a playbook said what is no JSON")
                    continue
                if isinstance(found, dict):
                    self.lines.put(found)
        self.lines.put(None)

    def stop(self) -> None:
        """Let it break the run off; after STOP_S it is killed."""
        with self._stopping, suppress(OSError, ValueError):
            assert self._popen.stdin is not None
            self._popen.stdin.close()
        timer = threading.Timer(STOP_S, self.kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        if self._popen.poll() is None:
            with suppress(OSError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code; None when it has not ended in time."""
        try:
            code = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        with self._stopping, suppress(OSError, ValueError):
            assert self._popen.stdin is not None
            self._popen.stdin.close()
        return code
