"""`set_stats`: values for the reports of other tools; no host and no later task sees them."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "data": Arg("dict", required=True),
    "per_host": Arg("bool", default=False),
    "aggregate": Arg("bool", default=True),
}
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    for name in args["data"]:
        if not name.isidentifier():
            raise BadArgument(f"'{name}' is not a variable's name")
    return {"failed": False, "result": {"ansible_stats": args}}
