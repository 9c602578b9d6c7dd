"""`timezone`: the host's time zone, and whether its clock of hardware tells it or UTC."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {"name": Arg(), "hwclock": Arg(choices=("local", "UTC"), aliases=("rtc",))}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["name"] is None and args["hwclock"] is None:
        raise BadArgument("give 'name' or 'hwclock'")
    if args["name"] is not None and (args["name"].startswith("/") or ".." in args["name"].split("/")):
        raise BadArgument(f"'{args['name']}' is no time zone such as Europe/Berlin")
    return args
