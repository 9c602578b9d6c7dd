"""The session that a held job waits for: the job is there for as long as this process keeps it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rm.client.attending import Session, Streams
from rm.client.connection import Connection
from rm.errors import RmError

# says what the job's script finds, and then waits for the code that the job is to end with
PROGRAM = "env -0 && printf '\\0' && read -r code && exit \"$code\""
COMPLETE = b"\0\0"
ENVIRONMENT_BYTES = 4 << 20  # more than a launch holds; a host may say anything
RELEASE_S = 30.0  # that the job's end is waited for


class Tether:
    """Of the job `job`, whose script waits for a session. The job ends with `release`; within half a minute
    when this process is gone; and as ever by its time limit or a cancel, which `on_end` tells another thread.
    """

    def __init__(self, connection: Callable[[], Connection], job: int, on_end: Callable[[], None]) -> None:
        begin = {"argv": ["/bin/sh", "-c", PROGRAM], "terminal": False, "releases": True}
        self._far = Session(connection, job, "", f"tether{job:08d}", begin, lambda _: None)
        self._on_end = on_end
        self._input, self._code_in = os.pipe()
        self._said, self._said_in = os.pipe()
        self.error: RmError | None = None
        self.holds = True  # until `on_end` is called; the thread that calls it lives a little longer
        self._thread = threading.Thread(target=self._attend, daemon=True)
        self._thread.start()

    def environment(self) -> dict[str, str]:
        """What the job's script finds; to be asked once.

        Raises:
            RmError: the session could not begin, or the job has ended.
        """
        text = b""
        while not text.endswith(COMPLETE):
            data = os.read(self._said, 65536)
            if not data:
                raise self.error or RmError("The job ended before it could be used.")
            text += data
            if len(text) > ENVIRONMENT_BYTES:
                raise RmError("The job's host says without end what the job finds there.", "Drain that host.")
        lines = os.fsdecode(text[: -len(COMPLETE)]).split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def release(self, code: int) -> None:
        """End the job with this exit code."""
        if self.holds:
            os.write(self._code_in, b"%d\n" % (code & 255))
            self._thread.join(RELEASE_S)

    def _attend(self) -> None:
        try:
            self._far.attend(Streams(self._input, self._said_in, -1))
        except RmError as error:
            self.error = error
        finally:
            os.close(self._said_in)
            self.holds = False
            self._on_end()
