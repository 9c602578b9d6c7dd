"""`package`: packages are installed, or are not; the host's own tool does it, with that tool's arguments."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext
from rm.playbook.modules import apt, dnf

_OWN = {
    "name": Arg("list", aliases=("pkg",)),
    "state": Arg(choices=("present", "installed", "latest", "absent", "removed"), default="present"),
    "update_cache": Arg("bool", default=False),
    "cache_valid_time": Arg("int", default=0),
    "install_recommends": Arg("bool"),
    "use": Arg(default="auto"),
}
# what only one of the tools knows; a host of the other refuses it
_ONLY = {
    name: Arg(arg.kind, choices=arg.choices, aliases=arg.aliases)
    for tool in (apt, dnf)
    for name, arg in tool.ARGS.items()
    if name not in (*_OWN, "upgrade", "deb", "policy_rc_d", "use_backend")
}
ARGS = {**_OWN, **_ONLY}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    state = {"installed": "present", "removed": "absent"}.get(args["state"], args["state"])
    given = {name: args[name] for name in _ONLY if args[name] is not None}
    foreign = {
        tool: sorted(name for name in given if name not in module.ARGS)
        for tool, module in (("apt", apt), ("dnf", dnf))
    }
    if "best" in given:
        given["nobest"] = not given["best"]
    if "update_only" in given:
        given["only_upgrade"] = given["update_only"]
    return {**{name: args[name] for name in _OWN}, **given, "state": state, "foreign": foreign}
