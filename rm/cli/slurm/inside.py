"""A client of the daemon for a program of a job: `python -I -m rm.cli.slurm.inside DOOR HOST USER`. Its
standard input is the connection to that program (rm.protocol.clients), which is not trusted.

It runs with the daemon's account, on its machine. So it opens no file there and asks nobody but the door, at
which it is the job's user; files are the program's, on its host.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from rm.cli.ending import ended
from rm.cli.output import note, speak_as
from rm.cli.slurm.fence import fence
from rm.cli.slurm.program import ABSENT, FAILED, run
from rm.cli.slurm.sbatch import WAIT_FOR, code_at_end
from rm.errors import RmError
from rm.protocol import clients as wire
from rm.submission import place
from rm.units import umask_of

PROGRAMS = (
    "sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sprio", "sshare", "sacctmgr", "sreport",
    "sstat", "seff",
)  # fmt: skip
LATEST_S = (1 << 32) - 1  # that a frame's number can say
ZONE = re.compile(r":?[A-Za-z<][A-Za-z0-9_+,.:<>/-]*\Z")  # a zone's name or POSIX's form: no path


class Program:
    """The other end: the program in the job."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._inbox = bytearray()

    def heard(self, kind: bytes) -> tuple[int, bytes]:
        """Its next frame, which must be of this kind: the number and the data."""
        head = self._exactly(wire.HEAD.size)
        found, number, length = wire.HEAD.unpack(head)
        if found != kind or length > wire.FRAME_BYTES:
            _leave()
        return number, self._exactly(length)

    def say(self, kind: bytes, number: int, data: bytes = b"") -> None:
        try:
            self._sock.sendall(wire.frame(kind, number, data))
        except OSError:  # it has gone, and nobody wants the rest
            _leave()

    def does(self, kind: bytes, number: int, data: bytes) -> bytes:
        """What it answers; its error as OSError."""
        self.say(kind, number, data)
        error, answer = self.heard(wire.ANSWER)
        if error:
            raise OSError(error, os.strerror(error))
        return answer

    def _exactly(self, count: int) -> bytes:
        while len(self._inbox) < count:
            data = self._sock.recv(wire.PIECE_BYTES)
            if not data:
                _leave()
            self._inbox += data
        taken = bytes(self._inbox[:count])
        del self._inbox[:count]
        return taken


class Output(io.RawIOBase):
    """One of its streams to write to."""

    def __init__(self, program: Program, kind: bytes) -> None:
        self._program, self._kind = program, kind

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data[: wire.PIECE_BYTES])
        self._program.say(self._kind, 0, piece)
        return len(piece)


class Input(io.RawIOBase):
    """Its standard input."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._program.does(wire.HEAR, min(len(buffer), wire.PIECE_BYTES), b"")
        taken = data[: len(buffer)]
        buffer[: len(taken)] = taken
        return len(taken)


class Later(BaseException):
    """The command is over for now, and begins again after these seconds with these words."""

    def __init__(self, seconds: int, words: Sequence[str]) -> None:
        super().__init__()
        self.seconds, self.words = seconds, words


class Who(NamedTuple):
    """As the daemon knows them."""

    host: str
    user: str


class Inside(place.Place):
    """Where the program of the job runs."""

    stays = False

    def __init__(
        self, program: Program, words: Sequence[str], environment: Mapping[str, str], directory: str, who: Who
    ) -> None:
        self._program, self._words = program, words
        self._environment, self._directory, self._who = environment, directory, who

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def directory(self) -> str:
        if not self._directory.startswith("/"):
            raise FileNotFoundError
        return self._directory

    def umask(self) -> int:
        return umask_of(self._environment)

    def host(self) -> str:
        return self._who.host

    def user(self) -> str:
        return self._who.user

    def is_root(self) -> bool:
        return self.user() == "root"

    def read(self, file: str, most_bytes: int) -> bytes:
        return self._program.does(wire.READ, most_bytes, os.fsencode(file))

    def is_file(self, file: str) -> bool:
        try:
            return bool(self._program.does(wire.IS_FILE, 0, os.fsencode(file)))
        except OSError:
            return False

    def write(self, file: str, text: str) -> None:
        self._program.does(wire.WRITE, 0, os.fsencode(file) + b"\0" + text.encode())

    def pause(self, seconds: float, words: Sequence[str] = ()) -> None:
        raise Later(min(math.ceil(seconds), LATEST_S), words or self._words)


def main(door: str, host: str, user: str) -> None:
    fence(door)
    program = Program(socket.socket(fileno=os.dup(0)))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(Input(program)), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(Output(program, wire.OUTPUT)), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(Output(program, wire.ERRORS)), encoding="utf-8", errors="backslashreplace",
        line_buffering=True,
    )  # fmt: skip
    again, code = b"", FAILED
    try:
        _, data = program.heard(wire.REQUEST)
        code = _run(program, json.loads(data), door, Who(host, user))
    except Later as later:
        code, again = later.seconds, json.dumps(list(later.words)).encode()
    except RmError as error:
        note(f"error: {error}")
    except Exception:
        note("error: The request cannot be understood.")
    signal.alarm(0)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    program.say(wire.AGAIN if again else wire.ENDED, code, again)
    _leave()


def _run(program: Program, asked: Mapping[str, Any], door: str, who: Who) -> int:
    name, words = str(asked["program"]), [str(word) for word in asked["words"]]
    environment = {str(key): str(value) for key, value in asked["env"].items()}
    place.here = Inside(program, words, environment, str(asked["cwd"]), who)
    # Python's alone: of OPENSSL_CONF and TZDIR, such as these, C libraries open files and load programs
    os.environ = {**environment, "RM_DAEMON__SOCKET": door, "RM_DEBUG": ""}  # type: ignore[assignment]  # noqa: B003
    if "TZ" in environment and _is_zone(environment["TZ"]):
        os.putenv("TZ", environment["TZ"])
    time.tzset()
    sys.argv = [name, *words]

    speak_as(name)
    return ended(lambda: _command(name, words))


def _command(name: str, words: Sequence[str]) -> int:
    if name == "sbatch" and words[:1] == [WAIT_FOR]:
        return code_at_end(int(words[1]))
    if name not in PROGRAMS and name not in ABSENT:
        needs = " on a host without rm's own commands" if name == "salloc" else ""
        note(f"error: {name} does not work inside a job{needs}. Start steps with srun, and jobs with sbatch.")
        return FAILED
    try:
        return run(name, list(words))
    except MemoryError:
        raise RmError("The answer is too large for a command inside a job.", "Ask for less.") from None


def _is_zone(text: str) -> bool:
    return not text or (ZONE.match(text) is not None and ".." not in text)


def _leave() -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
