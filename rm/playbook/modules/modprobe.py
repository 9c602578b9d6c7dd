"""`modprobe`: a kernel module is loaded, or is not, now and after the next boot."""

from __future__ import annotations

import shlex
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True),
    "state": Arg(choices=("absent", "present"), default="present"),
    "params": Arg(default=""),
    "persistent": Arg(choices=("disabled", "present", "absent"), default="disabled"),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    try:
        shlex.split(args["params"])
    except ValueError as problem:
        raise BadArgument(f"'params' cannot be split into words: {problem}") from None
    return args
