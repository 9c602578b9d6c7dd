"""`debconf`: the answers to what a Debian package asks."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

_KINDS = (
    "boolean", "error", "multiselect", "note", "password", "seen", "select", "string", "text", "title",
)  # fmt: skip
ARGS = {
    "name": Arg(required=True, aliases=("pkg",)),
    "question": Arg(aliases=("selection", "setting")),
    "vtype": Arg(choices=_KINDS),
    "value": Arg("raw", aliases=("answer",)),
    "unseen": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    given = [name for name in ("question", "vtype", "value") if args[name] is not None]
    if given and len(given) < 3:
        raise BadArgument("'question', 'vtype' and 'value' go together")
    value = args["value"]
    if isinstance(value, (list, tuple)):
        if args["vtype"] != "multiselect":
            raise BadArgument("only a multiselect takes a list")
        value = sorted(str(one) for one in value)
    elif value is not None:
        value = str(value).lower() if args["vtype"] == "boolean" else str(value)
    return {**args, "value": value}
