"""`template`: a Jinja2 file, rendered here, is the content of a file on the host."""

from __future__ import annotations

import posixpath
from typing import Any

from rm.playbook.module import OWNERSHIP, Arg, BadArgument, CompileContext, packed
from rm.playbook.template import render

ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "backup": Arg("bool", default=False),
    "force": Arg("bool", default=True),
    "validate": Arg(),
    **OWNERSHIP,
}
EXECUTOR = "copy"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    source = context.source(args["src"], "templates")
    try:
        text = context.files.read(source).decode()
    except UnicodeDecodeError:
        raise BadArgument(f"the template {source} is not UTF-8 text") from None
    rest = {k: v for k, v in args.items() if k != "src"}
    name = posixpath.basename(source).removesuffix(".j2")
    return {**rest, "content": packed(render(text, context.scope).encode()), "name": name}
