"""A connection to an sshd through a program, such as `ssh -W` by way of another host."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any


class Tunnel:
    """A socket whose other end is a program's standard input and output; it ends with the socket."""

    def __init__(self, program: Sequence[str], timeout_s: float) -> None:
        """Raises OSError where the program cannot be started."""
        self.program, self._said = program, ""
        self._ending = threading.Lock()  # the connection's own thread and its owner both end it, also at once
        self._raw, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the tunnel)
        try:
            # in a session of its own: Ctrl-C is for rm, which ends its steps in order
            self._process = subprocess.Popen(
                list(program),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError:
            self._raw.close()
            self._errors.close()
            raise
        finally:
            theirs.close()
        self._raw.settimeout(timeout_s)

    def said(self) -> str:
        """The program's last word on standard error."""
        with self._ending:
            self._read()
        return self._said

    def close(self) -> None:
        """End the program; to be called again and again, from any thread."""
        self._raw.close()
        with self._ending:
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(2)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._read()
            self._errors.close()

    def _read(self) -> None:
        if not self._errors.closed:  # else what was read before
            self._errors.seek(0)
            lines = self._errors.read(1 << 16).decode(errors="replace").strip().splitlines()
            self._said = lines[-1].strip() if lines else ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
