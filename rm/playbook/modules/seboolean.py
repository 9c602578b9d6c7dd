"""`seboolean`: a switch of SELinux is on or off, now or for good."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(required=True),
    "state": Arg("bool", required=True),
    "persistent": Arg("bool", default=False),
    "ignore_selinux_state": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
