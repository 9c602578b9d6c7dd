"""`template`: a Jinja2 file, rendered here, is the content of a file on the host."""

from __future__ import annotations

import posixpath
from typing import Any

from rm.playbook.module import OWNERSHIP, Arg, BadArgument, CompileContext, mode_of, packed
from rm.playbook.template import render

ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "backup": Arg("bool", default=False),
    "follow": Arg("bool", default=False),
    "force": Arg("bool", default=True),
    "newline_sequence": Arg(choices=("\n", "\r\n", "\r"), default="\n"),
    "output_encoding": Arg(default="utf-8"),
    "trim_blocks": Arg("bool", default=True),
    "lstrip_blocks": Arg("bool", default=False),
    "validate": Arg(),
    **OWNERSHIP,
    "mode": Arg("raw"),  # also "preserve"
}
EXECUTOR = "copy"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not args["trim_blocks"] or args["lstrip_blocks"]:
        raise BadArgument("'trim_blocks' and 'lstrip_blocks' are as by default here: write {%- or {%+")
    source = context.source(args["src"], "templates")
    try:
        text = context.files.read(source).decode()
    except UnicodeDecodeError:
        raise BadArgument(f"the template {source} is not UTF-8 text") from None
    dropped = ("src", "newline_sequence", "output_encoding", "trim_blocks", "lstrip_blocks")
    rest = {k: v for k, v in args.items() if k not in dropped}
    if args["mode"] is not None:
        keeps = args["mode"] == "preserve"
        rest["mode"] = context.files.mode(source) if keeps else mode_of("mode", args["mode"])
    made = render(text, context.scope).replace("\n", args["newline_sequence"])
    try:
        data = made.encode(args["output_encoding"])
    except (UnicodeEncodeError, LookupError) as problem:
        raise BadArgument(f"the text cannot be written as {args['output_encoding']}: {problem}") from None
    name = posixpath.basename(source).removesuffix(".j2")
    return {**rest, "content": packed(data), "name": name}
