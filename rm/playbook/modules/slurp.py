"""`slurp`: a file's content, in base64, for later tasks."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"src": Arg(required=True, aliases=("path",))}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {"path": args["src"]}
