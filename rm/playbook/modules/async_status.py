"""`async_status`: what a step in the background has come to."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"jid": Arg(required=True), "mode": Arg(default="status", choices=("status", "cleanup"))}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {"jid": args["jid"], "mode": args["mode"]}
