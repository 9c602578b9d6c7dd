"""`template`: a Jinja2 file, rendered here, is the content of a file on the host."""

from __future__ import annotations

import posixpath
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext, mode_of, packed
from rm.playbook.template.syntax import SYNTAX
from rm.playbook.template.template_file import about_file, render_file

ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "backup": Arg("bool", default=False),
    "follow": Arg("bool", default=False),
    "force": Arg("bool", default=True),
    "newline_sequence": Arg(choices=("\n", "\r\n", "\r"), default="\n"),
    "output_encoding": Arg(default="utf-8"),
    **{name: Arg("bool" if name.endswith("_blocks") else "str") for name in SYNTAX},
    "validate": Arg(),
    **OWNERSHIP,
    "mode": Arg("raw"),  # also "preserve"
}
EXECUTOR = "copy"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    source = context.source(args["src"], "templates")
    try:
        text = context.files.read(source).decode()
    except UnicodeDecodeError:
        raise BadArgument(f"the template {source} is not UTF-8 text") from None
    dropped = ("src", "newline_sequence", "output_encoding", *SYNTAX)
    rest = {k: v for k, v in args.items() if k not in dropped}
    if args["mode"] is not None:
        keeps = args["mode"] == "preserve"
        rest["mode"] = context.files.mode(source) if keeps else mode_of("mode", args["mode"])
    scope = context.scope.above(about_file(source, args["dest"], context.files, context.scope))

    def read(name: str) -> str:
        beside = posixpath.join(posixpath.dirname(source), name)
        path = context.source(name, "templates")
        return context.files.read(path if context.files.exists(path) else beside).decode()

    made = render_file(text, scope, args, read).replace("\n", args["newline_sequence"])
    try:
        data = made.encode(args["output_encoding"])
    except (UnicodeEncodeError, LookupError) as problem:
        raise BadArgument(f"the text cannot be written as {args['output_encoding']}: {problem}") from None
    name = posixpath.basename(source)
    return {**rest, "content": packed(data), "name": name}
