"""Whether a text matches a regular expression, found out in a process of its own: some expressions take
hours for some texts, and Python's `re` keeps every other thread waiting meanwhile, the leader's too."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

WITHIN_S = 5.0  # of processor time: a busy machine, and the start of the process, take nothing of it
AT_MOST_S = 300.0  # that pass, whatever keeps the process from computing
PROGRAM = """
import json, re, signal, sys
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
for line in sys.stdin:
    try:
        fits = re.fullmatch(*json.loads(line)) is not None
    except (re.error, RecursionError, OverflowError):  # the pattern is none here: the next one may be one
        fits = False
    sys.stdout.write("1" if fits else "0")
    sys.stdout.flush()
"""


class Fits:
    """Whether a pattern matches the whole of a text. All that is asked may take WITHIN_S together; what takes
    longer does not match, or cannot be told. The text may be a secret: it goes to standard input.

    A context manager: the process begins with the first question, and ends with it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._way: socket.socket | None = None
        self._until_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._way is not None:
            self._way.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __call__(self, pattern: str, text: str) -> bool:
        way = self._way or self._begin()
        try:
            way.settimeout(max(self._until_s - time.monotonic(), 0.001))
            way.sendall(json.dumps([pattern, text]).encode() + b"\n")
            return way.recv(1) == b"1"
        except OSError:  # its time is over, for whatever else is asked, too
            way.close()
            return False

    def _begin(self) -> socket.socket:
        self._until_s = time.monotonic() + AT_MOST_S
        self._way, its = socket.socketpair()
        argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(WITHIN_S)]
        with its:
            self._process = subprocess.Popen(
                argv, stdin=its.fileno(), stdout=its.fileno(), stderr=subprocess.DEVNULL
            )
        return self._way
