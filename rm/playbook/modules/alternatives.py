"""`alternatives`: which of several programs a name stands for, by `update-alternatives`."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True),
    "path": Arg(),
    "family": Arg(),
    "link": Arg(),
    "priority": Arg("int"),
    "state": Arg(choices=("present", "selected", "absent", "auto"), default="selected"),
    "subcommands": Arg("raw", aliases=("slaves",)),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["path"] is None and args["family"] is None:
        raise BadArgument("give 'path' or 'family'")
    for one in args["subcommands"] or ():
        if not isinstance(one, dict) or set(one) != {"name", "path", "link"}:
            raise BadArgument("'subcommands' is a list of mappings with 'name', 'path' and 'link'")
    return args
