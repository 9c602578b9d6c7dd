"""`mount`: a file system is mounted, now and at the next boot, or is not."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("name",)),
    "state": Arg(
        choices=("absent", "absent_from_fstab", "ephemeral", "mounted", "present", "remounted", "unmounted"),
        required=True,
    ),
    "src": Arg(),
    "fstype": Arg(),
    "opts": Arg(),
    "dump": Arg(default="0"),
    "passno": Arg(default="0"),
    "fstab": Arg(),
    "boot": Arg("bool", default=True),
    "backup": Arg("bool", default=False),
    "opts_no_log": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["state"] in ("mounted", "present", "ephemeral"):
        for name in ("src", "fstype"):
            if not args[name]:
                raise BadArgument(f"state '{args['state']}' needs '{name}'")
    if not args["path"].startswith("/") and args["path"] not in ("none", "swap"):
        raise BadArgument(f"the path '{args['path']}' is not absolute")
    return args
