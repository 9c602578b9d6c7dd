"""`tempfile`: a new temporary file or directory of a name that nobody else has."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "state": Arg(choices=("file", "directory"), default="file"),
    "path": Arg(),
    "prefix": Arg(default="ansible."),
    "suffix": Arg(default=""),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return args
