"""`set_fact`: variables of this host for the tasks and plays that follow."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {"cacheable": Arg("bool", default=False)}
EXECUTOR = "note"
ANY_ARGUMENT = True
NAMES = True
CONSTANTS = ("none", "None", "true", "True", "false", "False")  # of templates


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    facts = {k: v for k, v in args.items() if k != "cacheable"}
    if not facts:
        raise BadArgument("no variable is named")
    for name in facts:
        if not str(name).isidentifier() or name in CONSTANTS:
            raise BadArgument(f"'{name}' is not a variable's name")
    facts = dict(sorted(facts.items()))  # the order in which Ansible's lookup varnames has them
    return {"failed": False, "result": {"ansible_facts": facts}, "cacheable": bool(args.get("cacheable"))}
