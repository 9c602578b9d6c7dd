"""`lineinfile`: a text file has this line, in place of the one that matches, or has none such."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest", "destfile", "name")),
    "line": Arg(aliases=("value",)),
    "regexp": Arg(aliases=("regex",)),
    "search_string": Arg(),
    "state": Arg(choices=("present", "absent"), default="present"),
    "insertafter": Arg(),
    "insertbefore": Arg(),
    "create": Arg("bool", default=False),
    "backup": Arg("bool", default=False),
    "backrefs": Arg("bool", default=False),
    "firstmatch": Arg("bool", default=False),
    "validate": Arg(),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present" and args["line"] is None:
        raise BadArgument("the argument 'line' is missing")
    if args["state"] == "absent" and not (args["line"] or args["regexp"] or args["search_string"]):
        raise BadArgument("give 'line', 'regexp' or 'search_string' to say which lines go")
    if args["insertafter"] and args["insertbefore"]:
        raise BadArgument("give only one of 'insertafter' and 'insertbefore'")
    if args["regexp"] is not None and args["search_string"] is not None:
        raise BadArgument("give only one of 'regexp' and 'search_string'")
    if args["state"] == "present" and args["backrefs"] and args["regexp"] is None:
        raise BadArgument("'backrefs' needs 'regexp'")
    for name in ("regexp", "insertafter", "insertbefore"):
        try:
            re.compile((args[name] or "").encode(errors="surrogateescape"))
        except re.error as problem:
            raise BadArgument(f"'{name}' is not a regular expression: {problem}") from None
    return args
