"""What a client that runs for a program of a job can do to the machine that it runs on: next to nothing.

Against a mistake of ours: the client runs none of the program's code, but what it is told comes from there.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import sysconfig
from typing import Any

from rm.errors import RmError

MOST_S, MOST_BYTES = 60, 1 << 30
READABLE = tuple(
    os.path.realpath(path) + os.sep
    for path in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.join(os.path.dirname(__file__), "../.."),  # rm itself
        "/usr/share/zoneinfo",
    )
)
FORBIDDEN = frozenset({
    "os.chmod", "os.chown", "os.fork", "os.forkpty", "os.kill", "os.link", "os.mkdir", "os.remove",
    "os.rename", "os.rmdir", "os.symlink", "os.system", "os.truncate", "os.utime", "pty.spawn",
    "shutil.rmtree", "socket.bind", "socket.sendto",
})  # fmt: skip
STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "ctypes.")


def fence(door: str) -> None:
    """From now on this process has bounds of time and memory, reads what Python imports, connects to the
    door, and does nothing else outside."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))

    def late(*_: Any) -> None:
        raise RmError(f"The daemon gives a command inside a job {MOST_S} s, which are over.")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_S)

    def look(event: str, of: tuple[Any, ...]) -> None:
        if event == "open":
            _must_be_readable(of[0], of[2])
        elif event == "socket.connect":
            if of[1] != door:
                raise PermissionError(f"no connection to {of[1]!r}")
        elif event in FORBIDDEN or event.startswith(STARTS):
            raise PermissionError(f"no {event}")

    sys.addaudithook(look)


def _must_be_readable(path: Any, flags: int) -> None:
    if isinstance(path, int):
        return
    if flags & (os.O_WRONLY | os.O_RDWR) or not os.path.realpath(os.fsdecode(path)).startswith(READABLE):
        raise PermissionError(f"no file {os.fsdecode(path)!r}")
