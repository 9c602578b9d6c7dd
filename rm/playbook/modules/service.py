"""`service`: a service runs or rests, now and after the next boot."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "name": Arg(),
    "state": Arg(choices=("reloaded", "restarted", "started", "stopped")),
    "enabled": Arg("bool"),
    "sleep": Arg("int"),
    "pattern": Arg(),
    "runlevel": Arg(default="default"),
    "arguments": Arg(aliases=("args",), default=""),
    "use": Arg(default="auto"),
    # what a host with systemd knows besides, as Ansible hands it on
    "daemon_reload": Arg("bool", default=False, aliases=("daemon-reload",)),
    "daemon_reexec": Arg("bool", default=False, aliases=("daemon-reexec",)),
    "masked": Arg("bool"),
    "force": Arg("bool", default=False),
    "scope": Arg(choices=("system", "user", "global"), default="system"),
    "no_block": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["name"] is None:  # as Ansible hands it on to systemd, which alone can do without
        if not args["daemon_reload"] and not args["daemon_reexec"]:
            raise BadArgument("the argument 'name' is missing")
        for name in ("state", "enabled", "masked"):
            if args[name] is not None:
                raise BadArgument(f"'{name}' needs 'name'")
    only_systemd = args["masked"] is not None or args["daemon_reload"] or args["daemon_reexec"]
    if args["state"] is None and args["enabled"] is None and not only_systemd:
        raise BadArgument("give 'state' or 'enabled'")
    return args
