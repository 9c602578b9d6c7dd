"""`wait_for`: until a port answers, is silent or drained, a path or text is there or gone, or time is up."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "host": Arg(default="127.0.0.1"),
    "port": Arg("int"),
    "path": Arg(),
    "search_regex": Arg(),
    "state": Arg(choices=("present", "started", "stopped", "absent", "drained"), default="started"),
    "exclude_hosts": Arg("list"),
    "active_connection_states": Arg("list"),
    "timeout": Arg("int", default=300),
    "delay": Arg("int", default=0),
    "sleep": Arg("int", default=1),
    "connect_timeout": Arg("int", default=5),
    "msg": Arg(),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["port"] is not None and args["path"] is not None:
        raise BadArgument("give only one of 'port' and 'path'")
    if args["state"] == "drained" and args["port"] is None:
        raise BadArgument("state 'drained' needs 'port'")
    if args["path"] is not None and args["state"] == "stopped":
        raise BadArgument("state 'stopped' is for a port; a path is 'absent'")
    if args["active_connection_states"]:
        raise BadArgument("'active_connection_states' is not supported: every open connection counts")
    try:
        re.compile(args["search_regex"] or "")
    except re.error as problem:
        raise BadArgument(f"'search_regex' is not a regular expression: {problem}") from None
    return args
