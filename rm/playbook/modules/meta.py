"""`meta`: flush_handlers runs the notified handlers now, noop does nothing."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, BadArgument, CompileContext

ARGS = {"_raw": Arg(required=True)}
FREE_FORM = "_raw"
EXECUTOR = "note"
KNOWN = ("flush_handlers", "noop")


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["_raw"] not in KNOWN:
        raise BadArgument(f"meta knows {', '.join(KNOWN)}, not '{args['_raw']}'")
    return {"failed": False, "result": {"msg": ""}}
