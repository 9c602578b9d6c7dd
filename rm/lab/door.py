"""The program that becomes the lab's keeper, and the keeper's door.

Started by `launch.py` with the plan on standard input; says with JSON lines on standard output how it goes
until all hosts are up, then answers on the Unix socket `lab.sock`: one JSON request and reply a connection.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
from typing import Any

from rm.errors import RmError, UsageError
from rm.lab import fabric, id_map
from rm.lab import syscalls as sc
from rm.lab.keeper import Keeper, hush


def answer(keeper: Keeper, request: dict[str, Any]) -> dict[str, Any]:
    operations = {
        "crash": keeper.crash,
        "boot": keeper.boot,
        "freeze": keeper.freeze,
        "thaw": keeper.thaw,
        "cut": keeper.cut,
        "heal": keeper.heal,
        "kill_sshd": keeper.kill_sshd,
        "start_sshd": keeper.start_sshd,
    }
    try:
        if request["op"] != "status":
            if request["op"] not in operations:
                raise UsageError(f"The lab knows no operation {request['op']}.")
            operations[request["op"]](request["host"])
        return {"ok": True, **keeper.status()}
    except RmError as error:
        return {"ok": False, "kind": type(error).__name__, "what": error.what, "hint": error.hint}
    except (OSError, fabric.FabricError) as error:
        return {"ok": False, "kind": "RmError", "what": f"{request.get('op')}: {error}.", "hint": ""}


def serve(keeper: Keeper, door: socket.socket) -> None:
    selector = selectors.DefaultSelector()
    selector.register(door, selectors.EVENT_READ)
    while True:
        if selector.select(timeout=1.0):
            connection, _ = door.accept()
            with connection, connection.makefile("rwb") as stream:
                try:
                    connection.settimeout(5.0)
                    request = json.loads(stream.readline())
                    stream.write(json.dumps(answer(keeper, request)).encode() + b"\n")
                    stream.flush()
                except (OSError, ValueError, KeyError) as error:  # a caller that went away, or no request
                    print(f"a request failed: {error!r}", file=sys.stderr, flush=True)
        keeper.reap()


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    plan = json.loads(sys.stdin.readline())
    try:
        if plan["mode"] != "root":
            id_map.enter(plan["mode"])
        sc.unshare(sc.CLONE_NEWPID | sc.CLONE_NEWNS | sc.CLONE_NEWNET | sc.CLONE_NEWIPC)
    except OSError as error:
        say({"error": f"This system refuses the lab its namespaces: {error}.", "hint": id_map.advice()})
        os._exit(1)
    pid = os.fork()
    if pid:
        # the keeper's number as this machine sees it; its parent's work is done
        say({"keeper": pid})
        os._exit(0)
    sc.set_process_name("lab-keeper")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        sc.mount("none", "/", "", sc.MS_REC | sc.MS_PRIVATE)
        sc.mount("proc", "/proc", "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
        if sys.stdin.readline() != "go\n":  # the caller that wanted the lab has gone
            os._exit(1)
        keeper = Keeper(plan)
        door = socket.socket(socket.AF_UNIX)
        here = os.open(plan["directory"], os.O_PATH | os.O_DIRECTORY)
        # by descriptor: a socket's path may have no more than 107 bytes
        door.bind(f"/proc/self/fd/{here}/lab.sock")
        door.listen(64)
        keeper.build()
        keeper.boot_all(list(keeper.hosts))
    except (RmError, OSError, fabric.FabricError) as error:
        say({"error": str(error), "hint": getattr(error, "hint", "")})
        os._exit(1)
    say({"ready": True})
    hush()
    serve(keeper, door)


if __name__ == "__main__":
    main()
