"""`systemd`: a unit runs or rests, now and after the next boot; the manager reads its files again."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(aliases=("service", "unit")),
    "state": Arg(choices=("reloaded", "restarted", "started", "stopped")),
    "enabled": Arg("bool"),
    "masked": Arg("bool"),
    "force": Arg("bool", default=False),
    "daemon_reload": Arg("bool", default=False, aliases=("daemon-reload",)),
    "daemon_reexec": Arg("bool", default=False, aliases=("daemon-reexec",)),
    "scope": Arg(choices=("system", "user", "global"), default="system"),
    "no_block": Arg("bool", default=False),
}
EXECUTOR = "service"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    for name in ("state", "enabled", "masked"):
        if args[name] is not None and args["name"] is None:
            raise BadArgument(f"'{name}' needs 'name'")
    if args["name"] is None and not args["daemon_reload"] and not args["daemon_reexec"]:
        raise BadArgument("give 'name', 'daemon_reload' or 'daemon_reexec'")
    return {**args, "systemd_only": True}
