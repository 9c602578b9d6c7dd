"""Daemons and commands of rm that begin in a fork of a process which has loaded rm, since that takes most of
the processor time of either. What they do then, and how, is what `rmx` does. Other tests start real programs.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tests import preloading

ANSWER_BYTES = 64  # of the server: a number
READ_BY_PYTHON = ("PYTHON", "LC_", "LANG")  # variables by which it begins
_lock = threading.Lock()
_servers: dict[int, tuple[socket.socket, subprocess.Popen[bytes]]] = {}  # by process: a fork has none


class Program:
    """A process of rm, as `subprocess.Popen` tells of it."""

    def __init__(
        self,
        argv: Sequence[Any],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        streams: Sequence[int],
    ) -> None:
        """`streams` are descriptors of standard input, output and error."""
        self.args = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in argv]
        self.returncode: int | None = None
        self._end, told = os.pipe()
        request = json.dumps({"argv": self.args, "env": dict(env), "cwd": os.path.abspath(cwd)}).encode()
        try:
            with _lock:
                server = _server()
                socket.send_fds(server, [len(request).to_bytes(4, "big")], [*streams, told])
                server.sendall(request)
                self.pid = int(server.recv(ANSWER_BYTES))
        finally:
            os.close(told)

    def __del__(self) -> None:
        os.close(self._end)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._end, ANSWER_BYTES))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def daemon(program: Path, config: Path, log: Path) -> Program:
    """`rmx --config CONFIG daemon`, whose words are added to a file."""
    with log.open("ab") as said, open(os.devnull) as null:
        streams = (null.fileno(), said.fileno(), said.fileno())
        return Program([program, "--config", config, "daemon"], {**os.environ, "RM_CONFIG": ""}, "/", streams)


def run(
    argv: Sequence[Any],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = ".",
    input: str = "",
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with these, `capture_output` and `text`. Where variables are others by which Python
    begins, it is a new process."""
    env = os.environ if env is None else env
    names = [name for name in {*env, *os.environ} if name.startswith(READ_BY_PYTHON)]
    if any(env.get(name) != os.environ.get(name) for name in names):
        return subprocess.run(
            argv, env=env, cwd=cwd, input=input, timeout=timeout, capture_output=True, text=True, check=False
        )
    with _memory() as out, _memory() as err, _memory() as given:
        given.write(input.encode())
        given.seek(0)
        program = Program(argv, env, cwd, (given.fileno(), out.fileno(), err.fileno()))
        try:
            code = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        return subprocess.CompletedProcess(program.args, code, _said(out), _said(err))


def _memory() -> BinaryIO:
    return os.fdopen(os.memfd_create("rmx"), "w+b")


def _said(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode().replace("\r\n", "\n")


def _server() -> socket.socket:
    if os.getpid() not in _servers:
        ours, its = socket.socketpair()
        with its:
            process = subprocess.Popen(
                [sys.executable, preloading.__file__, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                cwd="/",
            )
        _servers[os.getpid()] = ours, process
        atexit.register(_end)
    return _servers[os.getpid()][0]


def _end() -> None:
    if os.getpid() in _servers:
        server, process = _servers.pop(os.getpid())
        server.close()  # then it ends, too
        process.wait()
