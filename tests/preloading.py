"""What `tests.preloaded` asks for programs of one kind: a process that loads what they need, and forks.

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
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

AGENTS = Path(__file__).parents[1] / "agents"
RMX, AGENT = "rmx", "agent"
LOADED = {
    # by a daemon, with the policies that it has by default, and by the commands that tests call most
    RMX: (
        "rm.bootstrap.daemon",
        "rm.cli.daemon",
        "rm.cli.main",
        "rm.cli.start",
        "rm.cli.status",
        "rm.cli.hosts.hosts",
        "rm.cli.jobs.logs",
        "rm.cli.jobs.queue",
        "rm.cli.jobs.quick_queue",
        "rm.cli.jobs.quick_submit",
        "rm.cli.jobs.show",
        "rm.cli.jobs.submit",
        "rm.cli.jobs.wait",
        "rm.cli.playbook.playbook",
        "rm.cli.playbook.work",
        # what a connection to a host needs is loaded by the first one: half of what a short playbook costs
        "rm.adapters.hosts.route",
        "rm.adapters.hosts.tunnel",
        "rm.adapters.playbook.channel",
        "rm.adapters.playbook.inventory_files",
        "rm.adapters.playbook.run",
        "rm.client.client",
        "rm.policies.comm.metronome",
        "rm.policies.placement.metronome",
        "rm.policies.queue.priority",
    ),
    AGENT: ("rm_agent", "rm_path", "rm_pause", "rm_probe", "rm_shape", "rm_steps"),
}
STREAMS = 3  # standard input, output and error, and then where the exit code is told


def serve(control: socket.socket, main: Callable[[], int]) -> None:
    """Until the process that asks has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    key.data()
                    continue
                head, given, _, _ = socket.recv_fds(control, 4, STREAMS + 1)
                if not head:
                    return
                request = json.loads(_whole(control, int.from_bytes(head, "big")))
                pid = os.fork()
                if not pid:
                    _become(main, request, given[:STREAMS])
                control.sendall(str(pid).encode())
                for descriptor in given[:STREAMS]:
                    os.close(descriptor)
                _watch(selector, pid, given[STREAMS])


def _watch(selector: selectors.BaseSelector, pid: int, told: int) -> None:
    """Tell the end of a process, whose number stays its own until it was heard of: as with a child."""
    handle = os.pidfd_open(pid)

    def ended() -> None:
        selector.unregister(handle)
        os.close(handle)
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert end is not None
        code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        with suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(told, str(code).encode())
        selector.register(told, selectors.EVENT_READ, heard)  # an error, once nobody reads there

    def heard() -> None:
        selector.unregister(told)
        os.close(told)
        os.waitpid(pid, 0)

    selector.register(handle, selectors.EVENT_READ, ended)


def _whole(control: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += control.recv(size - len(data))
    return data


def _become(main: Callable[[], int], request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the program, as a process that was started, and end."""
    code: Any = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()  # as its TZ says
        sys.argv = request["argv"]
        Path("/proc/self/comm").write_text(Path(sys.argv[0]).name)
        # those that are there know what their files were when they were made
        sys.stdin, sys.stdout, sys.stderr = (_again(one) for one in (sys.stdin, sys.stdout, sys.stderr))
        gc.enable()
        code = main()
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


def _loaded(kind: str) -> Callable[[], int]:
    """The program's `main`, with what it needs."""
    for name in LOADED[kind]:
        import_module(name)
    if kind == RMX:
        return import_module("rm.cli.start").main
    agent, steps = import_module("rm_agent"), import_module("rm_steps")
    for name in steps.OFTEN + steps.LIBRARIES:
        import_module(name)

    def main() -> int:
        for module in [one for name, one in sys.modules.items() if name.startswith("rm_")]:
            if hasattr(module, "STATE"):  # was read when it was loaded
                module.STATE = os.environ["RM_AGENT_STATE"]
        code: int = agent.main(sys.argv[1:])
        return code

    return main


if __name__ == "__main__":
    sys.path[0] = str(AGENTS)  # not the folder of tests
    gc.disable()
    program = _loaded(sys.argv[2])
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])), program)
