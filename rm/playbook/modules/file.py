"""`file`: a path is a directory, a file, a link, or absent, with owner and mode."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import OWNERSHIP, Arg, BadArgument, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest", "name")),
    "state": Arg(choices=("absent", "directory", "file", "link", "touch")),
    "src": Arg(),
    "recurse": Arg("bool", default=False),
    "force": Arg("bool", default=False),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    state = args["state"] or ("link" if args["src"] else "file")
    if state == "link" and not args["src"]:
        raise BadArgument("state 'link' needs 'src'")
    return {**args, "state": state}
