"""`wait_for`: until a port answers or is silent, a path exists or is gone, or time has passed."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, BadArgument, CompileContext

ARGS = {
    "host": Arg(default="127.0.0.1"),
    "port": Arg("int"),
    "path": Arg(),
    "state": Arg(choices=("present", "started", "stopped", "absent", "drained"), default="started"),
    "timeout": Arg("int", default=300),
    "delay": Arg("int", default=0),
    "sleep": Arg("int", default=1),
    "connect_timeout": Arg("int", default=5),
    "msg": Arg(),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["port"] is not None and args["path"] is not None:
        raise BadArgument("give only one of 'port' and 'path'")
    if args["state"] == "drained":
        raise BadArgument("the state 'drained' is not supported")
    return args
