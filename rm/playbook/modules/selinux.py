"""`selinux`: whether SELinux is enforced, now and after the next boot, and by which policy."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "state": Arg(required=True, choices=("enforcing", "permissive", "disabled")),
    "policy": Arg(),
    "configfile": Arg(default="/etc/selinux/config", aliases=("conf", "file")),
    "update_kernel_param": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] != "disabled" and not args["policy"]:
        raise BadArgument("'policy' is needed unless the state is 'disabled'")
    return args
