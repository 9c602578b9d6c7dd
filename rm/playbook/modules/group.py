"""`group`: a group exists, or does not."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True),
    "state": Arg(choices=("present", "absent"), default="present"),
    "gid": Arg("int"),
    "system": Arg("bool", default=False),
    "local": Arg("bool", default=False),
    "non_unique": Arg("bool", default=False),
    "force": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
