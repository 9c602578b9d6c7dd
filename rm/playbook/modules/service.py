"""`service`: a service runs or rests, now and after the next boot."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True),
    "state": Arg(choices=("reloaded", "restarted", "started", "stopped")),
    "enabled": Arg("bool"),
    "sleep": Arg("int"),
    "pattern": Arg(),
    "runlevel": Arg(default="default"),
    "arguments": Arg(aliases=("args",), default=""),
    "use": Arg(default="auto"),
}
ALIASES = ("sysvinit",)


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] is None and args["enabled"] is None:
        raise BadArgument("give 'state' or 'enabled'")
    return args
