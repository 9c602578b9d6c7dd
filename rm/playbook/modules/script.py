"""`script`: a program of the control machine runs on the host, unless `creates` is there."""

from __future__ import annotations

import posixpath
import shlex
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext, packed

ARGS = {
    "_raw": Arg(),
    "cmd": Arg(),
    "chdir": Arg(),
    "creates": Arg(),
    "removes": Arg(),
    "executable": Arg(),
    "decrypt": Arg("bool", default=True),
}
FREE_FORM = "_raw"
COMMAND = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    text = args["cmd"] if args["_raw"] is None else args["_raw"]
    try:
        words = shlex.split(text or "")
    except ValueError as problem:
        raise BadArgument(f"the command cannot be split into words: {problem}") from None
    if not words:
        raise BadArgument("the command is empty")
    source = context.source(words[0], "files")
    rest = {k: args[k] for k in ("chdir", "creates", "removes", "executable")}
    content = packed(context.files.read(source, args["decrypt"]))
    return {**rest, "content": content, "name": posixpath.basename(source), "arguments": words[1:]}
