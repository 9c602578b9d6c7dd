"""`rm_steps.py` as a process of this machine: for `connection: local` and tasks delegated to localhost."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from rm.adapters.playbook import become as playbook_become
from rm.adapters.playbook.become import HINT, Refused
from rm.adapters.playbook.program import LOADER, Conversation, answers_within_s, late
from rm.errors import RmError, Unreachable

KILLED_S = 5.0  # until a process that was killed is gone, unless the kernel or sudo holds it


class LocalSteps:
    """Answers `steps` requests one at a time; raises Unreachable when the process is gone or does not answer
    in time, and Refused when sudo does not let this user become root."""

    def __init__(self, name: str, python: str, become: bool, password: str = "") -> None:
        self.name, self.become = name, become
        self._stuck = False  # a thread waits for the process, and holds the streams
        argv = [python, "-S", "-E", "-c", LOADER]
        if become:
            argv = playbook_become.argv(argv, password)
        asked = become and bool(password)
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if asked else None,
            )
        except OSError as problem:
            raise Unreachable(f"Steps cannot run here: {argv[0]}: {problem.strerror}.") from None
        try:
            if asked:
                self._become(password)
            self._talk = Conversation()
            self._write(self._talk.opening())
        except BaseException:
            self.close()
            raise

    def _become(self, password: str) -> None:
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        open_ones = [process.stdout.fileno(), process.stderr.fileno()]

        def read() -> bytes | None:
            while open_ones:
                ready, _, _ = select.select(open_ones, [], [], playbook_become.ANSWER_S)
                if not ready:
                    return None
                if part := os.read(ready[0], 4096):
                    return part
                open_ones.remove(ready[0])
            return b""

        try:
            playbook_become.converse(self.name, password, read, self._write)
        except BaseException:
            process.stderr.close()  # nobody passes it on
            raise
        threading.Thread(target=_pass_on, args=(process.stderr,), daemon=True).start()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except (OSError, ValueError):  # the latter: closed by another thread
            raise self._ended() from None

    def steps(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of one `steps` request."""
        lines: list[bytes] = []
        data = self._talk.asking(request)
        # neither a pipe's writing nor its reading has a time limit
        thread = threading.Thread(target=lambda: lines.append(self._answer(data)), daemon=True)
        thread.start()
        thread.join(answers_within_s(request))
        if thread.is_alive():
            with suppress(PermissionError):  # sudo's
                self.process.kill()
            thread.join(KILLED_S)
            self._stuck = thread.is_alive()
            raise late(self.name)
        (line,) = lines
        if not line.endswith(b"\n"):  # killed, perhaps in the middle of its answer
            raise self._ended()
        reply = json.loads(line)
        if not reply["ok"]:
            raise RmError(f"The steps for {self.name} were refused: {reply['error']}")
        result: dict[str, Any] = reply["result"]
        return result

    def _answer(self, data: bytes) -> bytes:
        """The line that answers; what has no end of line came from a process that is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
            return self.process.stdout.readline()
        except (OSError, ValueError):  # the latter: closed by another thread
            return b""

    def _ended(self) -> RmError:
        code = self.process.wait()
        if self.become and code == 1:
            return Refused(f"sudo on this machine does not let this user become root. {HINT}")
        return Unreachable(f"The steps for {self.name}, on this machine, ended with exit code {code}.")

    def close(self) -> None:
        if self._stuck:
            return
        for stream in (self.process.stdin, self.process.stdout):  # standard error ends with the process
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(KILLED_S)
        if self.process.poll() is None:
            with suppress(PermissionError):  # sudo's: it ends with the step that it is at
                self.process.kill()
                self.process.wait()


def _pass_on(stream: IO[bytes]) -> None:
    """What the steps write to standard error, to ours."""
    with stream:
        for line in stream:
            sys.stderr.write(line.decode(errors="replace"))
