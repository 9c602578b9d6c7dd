"""`fail`: stop this host with a message."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"msg": Arg("raw", default="Failed as requested from task")}
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {"failed": True, "result": {"msg": args["msg"]}}
