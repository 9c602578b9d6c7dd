"""Daemons, commands and agents that begin in a fork of a process which has loaded what they need, which takes
most of their processor time. What they do then, and how, is what the programs do. Other tests start these.

All workers of a run fork from the same two processes (`share`).
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tests import preloading

ANSWER_BYTES = 64  # of the server: a number
READ_BY_PYTHON = ("PYTHON", "LC_", "LANG")  # variables by which it begins
UTF8 = ("LC_ALL", "C.UTF-8")  # which is as if none were set
WAITING = 64  # that connect at once
_lock = threading.Lock()
_servers: dict[tuple[int, str], socket.socket] = {}  # by process, since a fork has none, and kind
_started: list[subprocess.Popen[bytes]] = []  # by this process
_place: tuple[Path, int] | None = None  # where their sockets are, and the process with which they end


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
        except subprocess.TimeoutExpired:
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
        _servers[mine] = _connected(kind)
    return _servers[mine]


def _connected(kind: str) -> socket.socket:
    """With the process of this kind, which is started where there is none yet."""
    global _place
    _place = _place or _own_place()
    folder, owner = _place
    # a name of any length, where that of a socket has a hundred bytes at most
    where = os.open(folder, os.O_RDONLY)
    try:
        name = f"/proc/self/fd/{where}/{kind}"
        with open(f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(name):
                with socket.socket(socket.AF_UNIX) as door:
                    door.bind(name)
                    door.listen(WAITING)
                    _started.append(_start(kind, door.fileno(), owner))
        control = socket.socket(socket.AF_UNIX)
        control.connect(name)
        return control
    finally:
        os.close(where)


def _start(kind: str, door: int, owner: int) -> subprocess.Popen[bytes]:
    flags, env = ([], None) if kind == preloading.RMX else (["-S", "-E"], {"PATH": os.environ["PATH"]})
    return subprocess.Popen(
        [sys.executable, *flags, preloading.__file__, kind, str(door), str(owner)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[door],
        cwd="/",
        env=env,
        start_new_session=True,  # it outlives who started it, if others use it as well
    )


def _own_place() -> tuple[Path, int]:
    """Of a run without workers: what is started ends with this process."""
    folder, me = Path(tempfile.mkdtemp(prefix="rm-preloaded-")), os.getpid()

    def end() -> None:
        if os.getpid() == me:  # not in a fork
            for control in _servers.values():
                control.close()
            for process in _started:
                process.kill()
                process.wait()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return folder, me


def share(folder: Path, owner: int) -> None:
    """All workers of a run start programs from the same processes, which end with the process `owner`.
    Only who may start programs as this user may enter the folder."""
    global _place
    _place = folder, owner
