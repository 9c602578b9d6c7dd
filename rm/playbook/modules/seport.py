"""`seport`: ports that SELinux takes for those of a type."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "ports": Arg("list", required=True),
    "proto": Arg(required=True, choices=("tcp", "udp")),
    "setype": Arg(required=True),
    "state": Arg(choices=("absent", "present"), default="present"),
    "reload": Arg("bool", default=True),
    "local": Arg("bool", default=False),
    "ignore_selinux_state": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    ports = [re.sub(r"\s", "", one) for one in args["ports"]]
    for port in ports:
        if not re.fullmatch(r"\d+(-\d+)?", port):
            raise BadArgument(f"'{port}' is neither a port nor a range such as 8000-8010")
    return {**args, "ports": ports}
