"""`blockinfile`: a text file has this block of lines between two marker lines, or has none."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest", "destfile", "name")),
    "block": Arg(aliases=("content",), default=""),
    "marker": Arg(default="# {mark} ANSIBLE MANAGED BLOCK"),
    "marker_begin": Arg(default="BEGIN"),
    "marker_end": Arg(default="END"),
    "insertafter": Arg(),
    "insertbefore": Arg(),
    "state": Arg(choices=("present", "absent"), default="present"),
    "create": Arg("bool", default=False),
    "backup": Arg("bool", default=False),
    "append_newline": Arg("bool", default=False),
    "prepend_newline": Arg("bool", default=False),
    "encoding": Arg(choices=("utf-8",), default="utf-8"),
    "validate": Arg(),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["insertafter"] is not None and args["insertbefore"] is not None:
        raise BadArgument("give only one of 'insertafter' and 'insertbefore'")
    for name in ("insertafter", "insertbefore"):
        try:
            re.compile((args[name] or "").encode(errors="surrogateescape"))
        except re.error as problem:
            raise BadArgument(f"'{name}' is not a regular expression: {problem}") from None
    return args
