"""`rm_steps.py` as a process of this machine: for `connection: local` and tasks delegated to localhost."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import Any

from rm.adapters.playbook_program import LOADER, in_parts, program
from rm.errors import RmError, Unreachable


class LocalSteps:
    """Answers `steps` requests one at a time; raises Unreachable when the process is gone."""

    def __init__(self, name: str, python: str, become: bool) -> None:
        self.name = name
        argv = [*(["sudo", "-n"] if become else []), python, "-S", "-E", "-c", LOADER]
        try:
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as problem:
            raise Unreachable(f"Steps cannot run here: {argv[0]}: {problem.strerror}.") from None
        payload = program()
        self._write(b"%d\n%s" % (len(payload), payload))

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def steps(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of one `steps` request."""
        return in_parts(request, self._one)

    def _one(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdout is not None
        self._write(json.dumps({"op": "steps", **request}, separators=(",", ":")).encode() + b"\n")
        line = self.process.stdout.readline()
        if not line:
            raise self._ended()
        reply = json.loads(line)
        if not reply["ok"]:
            raise RmError(f"The steps for {self.name} were refused: {reply['error']}")
        result: dict[str, Any] = reply["result"]
        return result

    def _ended(self) -> Unreachable:
        code = self.process.wait()
        return Unreachable(f"The steps for {self.name}, on this machine, ended with exit code {code}.")

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
