"""The process that `tests.preloaded` asks for programs of rm: it loads rm, and forks for each of them.

It is a program of its own, without threads, since what other threads hold is locked for ever in a fork.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

LOADED = (  # by a daemon, and by the commands that tests call most
    "rm.bootstrap.daemon",
    "rm.cli.daemon",
    "rm.cli.main",
    "rm.cli.start",
    "rm.cli.jobs.quick_queue",
    "rm.cli.jobs.quick_submit",
)
STREAMS = 3  # standard input, output and error, and then where the exit code is told


def serve(control: socket.socket) -> None:
    """Until the process that asks has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fileobj)
                    _tell_end(key.fd, *key.data)
                    continue
                head, given, _, _ = socket.recv_fds(control, 4, STREAMS + 1)
                if not head:
                    return
                request = json.loads(_whole(control, int.from_bytes(head, "big")))
                pid = os.fork()
                if not pid:
                    _become(request, given[:STREAMS])
                control.sendall(str(pid).encode())
                for descriptor in given[:STREAMS]:
                    os.close(descriptor)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, given[STREAMS]))


def _whole(control: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += control.recv(size - len(data))
    return data


def _tell_end(handle: int, pid: int, told: int) -> None:
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, str(code).encode())
    os.close(told)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be `rmx`, as a process that was started, and end."""
    code: Any = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = request["argv"]
        Path("/proc/self/comm").write_text(Path(sys.argv[0]).name)
        # those that are there know what their files were when they were made
        sys.stdin, sys.stdout, sys.stderr = (_again(one) for one in (sys.stdin, sys.stdout, sys.stderr))
        gc.enable()
        code = import_module("rm.cli.start").main()
        threading._shutdown()
        atexit._run_exitfuncs()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _again(stream: Any) -> Any:
    buffering = 1 if stream is sys.stderr else -1
    return open(stream.fileno(), stream.mode, buffering, stream.encoding, stream.errors, closefd=False)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of tests
    gc.disable()
    for name in LOADED:
        import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
