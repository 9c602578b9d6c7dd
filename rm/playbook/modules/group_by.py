"""`group_by`: this host joins a group, for the plays that follow."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {"key": Arg(required=True), "parents": Arg("list", default=["all"])}
CONTROL = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {
        "key": args["key"].replace(" ", "-"),
        "parents": [one.replace(" ", "-") for one in args["parents"]],
    }
