"""`assemble`: a file is made of the files of a directory, in the order of their names."""

from __future__ import annotations

import glob
import posixpath
import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext, packed

ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "backup": Arg("bool", default=False),
    "delimiter": Arg(),
    "remote_src": Arg("bool", default=True),
    "regexp": Arg(),
    "ignore_hidden": Arg("bool", default=False),
    "validate": Arg(),
    "decrypt": Arg("bool", default=True),
    "follow": Arg("bool", default=False),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    try:
        re.compile(args["regexp"] or "")
    except re.error as problem:
        raise BadArgument(f"'regexp' is not a regular expression: {problem}") from None
    rest = {name: value for name, value in args.items() if name not in ("remote_src", "decrypt")}
    if args["remote_src"]:
        return rest
    source = context.source(args["src"].rstrip("/"), "files")
    within = glob.escape(source)
    paths = context.files.glob(f"{within}/*") + context.files.glob(f"{within}/.*")
    if not context.files.exists(source):
        raise BadArgument(f"the local directory {source} does not exist")
    files = {posixpath.basename(path): packed(context.files.read(path, args["decrypt"])) for path in paths}
    return {**rest, "files": files}
