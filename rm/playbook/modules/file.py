"""`file`: a path is a directory, a file, a link, or absent, with owner, mode and times."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest", "name")),
    "state": Arg(choices=("absent", "directory", "file", "hard", "link", "touch")),
    "src": Arg(),
    "recurse": Arg("bool", default=False),
    "force": Arg("bool", default=False),
    "follow": Arg("bool", default=True),
    "modification_time": Arg(),
    "modification_time_format": Arg(default="%Y%m%d%H%M.%S"),
    "access_time": Arg(),
    "access_time_format": Arg(default="%Y%m%d%H%M.%S"),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    state = args["state"] or ("link" if args["src"] else None)
    if args["recurse"] and state not in (None, "directory"):
        raise BadArgument("'recurse' needs state 'directory'")
    if args["src"] is not None and state not in (None, "link", "hard"):
        raise BadArgument("'src' needs state 'link' or 'hard'")
    return {**args, "state": state}
