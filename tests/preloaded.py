"""Daemons, commands and agents that begin in a fork of a process which has loaded what they need, which takes
most of their processor time. What they do then, and how, is what the programs do. Other tests start these.
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
UTF8 = ("LC_ALL", "C.UTF-8")  # which is as if none were set
_lock = threading.Lock()
# by process, since a fork of one has none, and kind
_servers: dict[tuple[int, str], tuple[socket.socket, subprocess.Popen[bytes]]] = {}


class Program:
    """A process of rm, as `subprocess.Popen` tells of it."""

    def __init__(
        self,
        argv: Sequence[Any],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        streams: Sequence[int],
        kind: str = preloading.RMX,
    ) -> None:
        """`streams` are descriptors of standard input, output and error."""
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        self.args = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in argv]
        self.returncode: int | None = None
        self._end, told = os.pipe()
        given = {"argv": self.args, "env": dict(env), "cwd": os.path.abspath(cwd), "umask": _umask()}
        request = json.dumps(given).encode()
        try:
            with _lock:
                server = _server(kind)
                socket.send_fds(server, [len(request).to_bytes(4, "big")], [*streams, told])
                server.sendall(request)
                self.pid = int(server.recv(ANSWER_BYTES))
        finally:
            os.close(told)

    def __del__(self) -> None:
        self._hear()

    def _hear(self) -> None:
        """Its end was heard of: from now on its number may be another's."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._end, ANSWER_BYTES))
            self._hear()
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


def agent(env: Mapping[str, str]) -> Program:
    """`rm_agent.py --serve` of this checkout, spoken to by `stdin` and `stdout`."""
    requests, stdin = os.pipe()
    stdout, answers = os.pipe()
    try:
        argv = [preloading.AGENTS / "rm_agent.py", "--serve"]
        program = Program(argv, env, ".", (requests, answers, 2), preloading.AGENT)
    finally:
        os.close(requests)
        os.close(answers)
    program.stdin, program.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
    return program


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
    others = {*env.items()} ^ {*os.environ.items()}
    if any(name.startswith(READ_BY_PYTHON) and (name, value) != UTF8 for name, value in others):
        return subprocess.run(
            argv, env=env, cwd=cwd, input=input, timeout=timeout, capture_output=True, text=True, check=False
        )
    with _memory() as out, _memory() as err, _memory() as given:
        given.write(input.encode())
        given.seek(0)
        program = Program(argv, env, cwd, (given.fileno(), out.fileno(), err.fileno()))
        try:
            code = program.wait(timeout)
        except BaseException:  # also of Ctrl-C
            program.kill()
            program.wait()
            raise
        return subprocess.CompletedProcess(program.args, code, _said(out), _said(err))


def _umask() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line[:6] == "Umask:")
    return int(line.split()[1], 8)


def _memory() -> BinaryIO:
    return os.fdopen(os.memfd_create("rmx"), "w+b")


def _said(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode().replace("\r\n", "\n")


def _server(kind: str) -> socket.socket:
    mine = os.getpid(), kind
    if mine not in _servers:
        ours, its = socket.socketpair()
        flags, env = ([], None) if kind == preloading.RMX else (["-S", "-E"], {"PATH": os.environ["PATH"]})
        with its:
            process = subprocess.Popen(
                [sys.executable, *flags, preloading.__file__, str(its.fileno()), kind],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                cwd="/",
                env=env,
            )
        _servers[mine] = ours, process
        atexit.register(_end, mine)
    return _servers[mine][0]


def _end(which: tuple[int, str]) -> None:
    if which[0] == os.getpid():
        server, process = _servers.pop(which)
        server.close()  # then it ends, too
        process.wait()
