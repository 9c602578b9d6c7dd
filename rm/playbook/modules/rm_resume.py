"""`rm_resume`: the daemon gives this host jobs again, unless somebody else drained it."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "host": Arg(),  # as the daemon knows it; else the inventory's name
    "only_drained_by": Arg(),  # leave a host alone whose reason does not hold this text
}
CONTROL = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
