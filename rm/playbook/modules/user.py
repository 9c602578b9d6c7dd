"""`user`: an account exists with these properties, or does not exist."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True, aliases=("user",)),
    "state": Arg(choices=("present", "absent"), default="present"),
    "uid": Arg("int"),
    "group": Arg(),
    "groups": Arg("list"),
    "append": Arg("bool", default=False),
    "comment": Arg(),
    "shell": Arg(),
    "home": Arg(),
    "create_home": Arg("bool", default=True, aliases=("createhome",)),
    "system": Arg("bool", default=False),
    "remove": Arg("bool", default=False),
    "force": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
