"""`rm_drain`: the daemon gives this host no new jobs; optionally wait until its jobs have ended."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "host": Arg(),  # as the daemon knows it; else the inventory's name
    "reason": Arg(default="drained by a playbook"),
    "wait": Arg("bool", default=True),
    "timeout": Arg("int", default=86_400),
    "sleep": Arg("float", default=2.0),
}
CONTROL = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
