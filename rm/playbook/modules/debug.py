"""`debug`: show a message or a variable."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument, TemplateProblem
from rm.playbook.module import Arg, CompileContext
from rm.playbook.template.template import expression, has_template

_NAME = re.compile(r"""[A-Za-z_]\w*(\.\w+|\[(-?\d+|'[^']*'|"[^"]*")\])*""")
ARGS = {
    "msg": Arg("raw", default="Hello world!", null=True),
    "var": Arg(),
    "verbosity": Arg("int", default=0),
}
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["verbosity"] > 0 and args["verbosity"] > expression("ansible_verbosity", context.scope):
        return {"skipped": True, "result": {"skipped_reason": "Verbosity threshold not met."}}
    if args["var"] is None:
        return {"failed": False, "result": {"msg": args["msg"]}}
    given = context.task.args.get("var") if context.task is not None else args["var"]
    # a template gave the name, or all arguments: it may come from a host
    if (given is None or has_template(given)) and not _NAME.fullmatch(args["var"]):
        raise BadArgument(f"'var' must name a variable, not {args['var']!r}")
    try:
        value = expression(args["var"], context.scope)
    except TemplateProblem as problem:  # as ansible-core 2.19 says it
        value = f"<< error 1 - {str(problem).removeprefix(repr(args['var']) + ': ')} >>"
    return {"failed": False, "result": {args["var"]: value}, "var": args["var"]}
