"""`assert`: conditions that must hold, with a message when one does not."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext
from rm.playbook.template.template import condition

ARGS = {
    "that": Arg("raw", required=True),
    "fail_msg": Arg("raw", aliases=("msg",)),
    "success_msg": Arg("raw"),
    "quiet": Arg("bool", default=False),
}
EXECUTOR = "note"
EXPRESSIONS = ("that",)  # bare expressions: evaluated here, not as templates


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    conditions = args["that"] if isinstance(args["that"], list) else [args["that"]]
    for one in conditions:
        if not condition(one, context.scope):
            said = args["fail_msg"] or f"the assertion '{one}' does not hold"
            return {"failed": True, "result": {"msg": said, "assertion": one, "evaluated_to": False}}
    return {"failed": False, "result": {"msg": args["success_msg"] or "All assertions passed"}}
