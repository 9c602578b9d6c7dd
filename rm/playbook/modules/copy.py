"""`copy`: a file on the host has exactly this content; a local directory is copied as a tree."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from rm.playbook.module import OWNERSHIP, Arg, BadArgument, CompileContext, packed

ARGS = {
    "src": Arg(),
    "content": Arg("raw"),
    "dest": Arg(required=True),
    "backup": Arg("bool", default=False),
    "force": Arg("bool", default=True),
    "validate": Arg(),
    "directory_mode": Arg("mode"),
    "remote_src": Arg("bool", default=False),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if (args["src"] is None) == (args["content"] is None):
        raise BadArgument("give either 'src' or 'content'")
    rest = {k: v for k, v in args.items() if k not in ("src", "content", "remote_src")}
    if args["remote_src"]:
        return {**rest, "remote_src": args["src"]}
    if args["content"] is not None:
        content = args["content"]
        text = content if isinstance(content, str) else json.dumps(content)
        return {**rest, "content": packed(text.encode()), "name": ""}
    source = context.source(args["src"].rstrip("/"), "files")
    tree = context.files.glob(f"{source}/**")
    if tree:
        top = source if args["src"].endswith("/") else posixpath.dirname(source)
        files = {posixpath.relpath(path, top): packed(context.files.read(path)) for path in tree}
        return {**rest, "files": files}
    return {**rest, "content": packed(context.files.read(source)), "name": posixpath.basename(source)}
