"""`debug`: show a message or a variable."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext
from rm.playbook.template import TemplateProblem, expression

ARGS = {"msg": Arg("raw", default="Hello world!"), "var": Arg(), "verbosity": Arg("int", default=0)}
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["verbosity"] > 0:
        return {"skipped": True, "result": {"msg": "shown only with -v"}}
    if args["var"] is None:
        return {"failed": False, "result": {"msg": args["msg"]}}
    try:
        value = expression(args["var"], context.scope)
    except TemplateProblem:
        value = "VARIABLE IS NOT DEFINED!"
    return {"failed": False, "result": {args["var"]: value}}
