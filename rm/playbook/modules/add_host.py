"""`add_host`: one more host, for the plays that follow."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True, aliases=("host", "hostname")),
    "groups": Arg("list", aliases=("group", "groupname")),
}
ANY_ARGUMENT = True
CONTROL = True
RUN_ONCE = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    variables = {k: v for k, v in args.items() if k not in ARGS}
    port = str(variables.get("ansible_port", 22))
    if not (port.isdecimal() and 1 <= int(port) <= 65_535):
        raise BadArgument(f"'ansible_port' must lie between 1 and 65535, not {port!r}")
    return {"name": args["name"], "groups": args["groups"] or [], "variables": variables}
