"""`authorized_key`: who may log in to an account by SSH keys."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "user": Arg(required=True),
    "key": Arg(required=True),
    "state": Arg(choices=("present", "absent"), default="present"),
    "path": Arg(),
    "manage_dir": Arg("bool", default=True),
    "exclusive": Arg("bool", default=False),
    "key_options": Arg(),
    "comment": Arg(),
    "follow": Arg("bool", default=False),
    "validate_certs": Arg("bool", default=True),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
