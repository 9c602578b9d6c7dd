"""`ping`: the host answers and can run steps."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"data": Arg(default="pong")}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
