"""`hostname`: the host's own name, now and after the next boot."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {"name": Arg(required=True), "use": Arg()}
FACTS = ("ansible_hostname", "ansible_nodename", "ansible_fqdn", "ansible_domain")


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", args["name"]):
        raise BadArgument(f"'{args['name']}' is not a host name: letters, digits, '-' and '.'")
    return {"name": args["name"]}
