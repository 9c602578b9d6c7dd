"""`wait_for_connection`: until the host can run steps."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "timeout": Arg("int", default=600),
    "delay": Arg("int", default=0),
    "sleep": Arg("int", default=1),
    "connect_timeout": Arg("int", default=5),
}
CONTROL = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
