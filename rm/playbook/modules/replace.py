"""`replace`: every match of a pattern in a text file is replaced."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest", "destfile", "name")),
    "regexp": Arg(required=True),
    "replace": Arg(default=""),
    "after": Arg(),
    "before": Arg(),
    "backup": Arg("bool", default=False),
    "encoding": Arg(default="utf-8"),
    "validate": Arg(),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    for name in ("regexp", "after", "before"):
        try:
            re.compile(args[name] or "")
        except re.error as problem:
            raise BadArgument(f"'{name}' is not a regular expression: {problem}") from None
    return args
