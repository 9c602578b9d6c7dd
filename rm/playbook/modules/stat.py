"""`stat`: what a path is, for later tasks to ask."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest", "name")),
    "follow": Arg("bool", default=False),
    "get_checksum": Arg("bool", default=True),
    "checksum_algorithm": Arg(choices=("sha1", "sha256", "md5"), default="sha1"),
    "get_mime": Arg("bool", default=True),
    "get_attributes": Arg("bool", default=True),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    return {k: args[k] for k in ("path", "follow", "get_checksum", "checksum_algorithm")}
