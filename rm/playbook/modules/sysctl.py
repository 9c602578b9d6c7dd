"""`sysctl`: a kernel setting, in a file for the next boot, and now."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True, aliases=("key",)),
    "value": Arg(aliases=("val",)),
    "state": Arg(choices=("present", "absent"), default="present"),
    "reload": Arg("bool", default=True),
    "sysctl_file": Arg(default="/etc/sysctl.conf"),
    "sysctl_set": Arg("bool", default=False),
    "ignoreerrors": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] == "present" and not args["value"]:
        raise BadArgument("state 'present' needs 'value'")
    return args
