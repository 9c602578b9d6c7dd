"""`set_fact`: variables of this host for the tasks and plays that follow."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"cacheable": Arg("bool", default=False)}
EXECUTOR = "note"
ANY_ARGUMENT = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    facts = {k: v for k, v in args.items() if k != "cacheable"}
    return {"failed": False, "result": {"ansible_facts": facts}}
