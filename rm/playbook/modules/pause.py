"""`pause`: wait for a time, or until the admin presses Enter."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "seconds": Arg("float"),
    "minutes": Arg("float"),
    "prompt": Arg(),
    "echo": Arg("bool", default=True),
}
CONTROL = True
RUN_ONCE = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["seconds"] is not None and args["minutes"] is not None:
        raise BadArgument("give only one of 'seconds' and 'minutes'")
    return args
