"""`meta`: what is about the play itself: handlers now, an end here, facts forgotten."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {"_raw": Arg(required=True)}
FREE_FORM = "_raw"
EXECUTOR = "note"
KNOWN = (
    "flush_handlers", "noop", "end_play", "end_batch", "end_host", "end_role", "clear_facts",
    "clear_host_errors", "refresh_inventory", "reset_connection",
)  # fmt: skip


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["_raw"] not in KNOWN:
        raise BadArgument(f"meta knows {', '.join(KNOWN)}, not '{args['_raw']}'")
    return {"failed": False, "result": {"msg": ""}}
