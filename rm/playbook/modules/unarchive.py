"""`unarchive`: what is in an archive (tar, zip) is in a directory of the host."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext, packed
from rm.playbook.modules.get_url import WEB

ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "remote_src": Arg("bool", default=False),
    "copy": Arg("bool", default=True),
    "creates": Arg(),
    "include": Arg("list"),
    "exclude": Arg("list"),
    "keep_newer": Arg("bool", default=False),
    "list_files": Arg("bool", default=False),
    "extra_opts": Arg("list"),
    "decrypt": Arg("bool", default=True),
    "io_buffer_size": Arg("int"),
    "validate_certs": WEB["validate_certs"],
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["include"] and args["exclude"]:
        raise BadArgument("give only one of 'include' and 'exclude'")
    if args["extra_opts"]:
        raise BadArgument("'extra_opts' is not supported: archives are unpacked without tar")
    dropped = ("remote_src", "copy", "extra_opts", "decrypt", "io_buffer_size")
    rest = {k: v for k, v in args.items() if k not in dropped}
    if args["remote_src"] or not args["copy"] or "://" in args["src"]:
        return rest
    source = context.source(args["src"], "files")
    return {**rest, "content": packed(context.files.read(source, args["decrypt"]))}
