"""`shell`: run a line of /bin/sh, unless `creates` exists or `removes` does not."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "_raw": Arg(),
    "cmd": Arg(),
    "chdir": Arg(),
    "creates": Arg(),
    "removes": Arg(),
    "stdin": Arg(),
    "stdin_add_newline": Arg("bool", default=True),
    "executable": Arg(default="/bin/sh"),
}
FREE_FORM = "_raw"
COMMAND = True
EXECUTOR = "command"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    text = args["cmd"] if args["_raw"] is None else args["_raw"]
    if not text:
        raise BadArgument("the command is empty")
    rest = {k: v for k, v in args.items() if k not in ("_raw", "cmd", "executable")}
    return {**rest, "argv": [args["executable"], "-c", text], "expand_argument_vars": False, "shell": text}
