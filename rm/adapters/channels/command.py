"""Alerts to a command of the administrator's: JSON on its standard input."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from rm.core.alerts.channel import NotTold


class CommandChannel:
    """Exit status 0 = delivered. What the command prints is not read: it may hold secrets of its own."""

    repeat_s = 0.0

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s

    def tell(self, notice: Mapping[str, Any]) -> None:
        body = json.dumps(notice).encode() + b"\n"
        name = self._command[0]
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise NotTold(f"The command {name} cannot be run: {error.strerror or error}.") from None
        try:
            process.communicate(body, self._timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise NotTold(f"The command {name} took longer than {self._timeout_s:g} s.") from None
        if process.returncode:
            raise NotTold(f"The command {name} failed with status {process.returncode}.")
