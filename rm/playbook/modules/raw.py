"""`raw`: a line for the host's shell, with nothing around it."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"_raw": Arg(required=True), "executable": Arg()}
FREE_FORM = "_raw"
COMMAND = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
