"""`fetch`: a file of the host is brought to the control machine."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "flat": Arg("bool", default=False),
    "fail_on_missing": Arg("bool", default=True),
    "validate_checksum": Arg("bool", default=True),
}
CONTROL = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {**args, "directory": context.directory}
