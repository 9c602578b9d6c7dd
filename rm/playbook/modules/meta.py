"""`meta`: what is about the play itself: handlers now, an end here, facts forgotten."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

KNOWN = (
    "flush_handlers", "noop", "end_play", "end_batch", "end_host", "end_role", "clear_facts",
    "clear_host_errors", "refresh_inventory", "reset_connection",
)  # fmt: skip
ARGS = {"_raw": Arg(required=True, choices=KNOWN)}
FREE_FORM = "_raw"
AS_WRITTEN = True  # as in Ansible no template is filled in
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {"failed": False, "result": {"msg": ""}}
