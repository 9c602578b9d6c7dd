"""`package`: packages are installed, or are not; the host's own tool does it."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg("list", required=True, aliases=("pkg",)),
    "state": Arg(choices=("present", "installed", "latest", "absent", "removed"), default="present"),
    "update_cache": Arg("bool", default=False),
    "cache_valid_time": Arg("int", default=0),
    "install_recommends": Arg("bool"),
    "use": Arg(default="auto"),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    state = {"installed": "present", "removed": "absent"}.get(args["state"], args["state"])
    return {**args, "state": state}
