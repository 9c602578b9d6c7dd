"""`synchronize`: rsync between the control machine and the host."""

from __future__ import annotations

import posixpath
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

CONTROL = True
ARGS = {
    "src": Arg(required=True),
    "dest": Arg(required=True),
    "mode": Arg(choices=("push", "pull"), default="push"),
    "dest_port": Arg("int"),
    "delete": Arg("bool", default=False),
    "private_key": Arg(),
    "rsync_path": Arg(),
    "archive": Arg("bool", default=True),
    "checksum": Arg("bool", default=False),
    "compress": Arg("bool", default=True),
    "existing_only": Arg("bool", default=False),
    "dirs": Arg("bool", default=False),
    "recursive": Arg("bool"),
    "links": Arg("bool"),
    "copy_links": Arg("bool", default=False),
    "perms": Arg("bool"),
    "times": Arg("bool"),
    "owner": Arg("bool"),
    "group": Arg("bool"),
    "set_remote_user": Arg("bool", default=True),
    "rsync_timeout": Arg("int", default=0),
    "rsync_opts": Arg("list", default=()),
    "use_ssh_args": Arg("bool", default=False),
    "ssh_connection_multiplexing": Arg("bool", default=False),
    "partial": Arg("bool", default=False),
    "verify_host": Arg("bool", default=False),
    "delay_updates": Arg("bool", default=True),
    "link_dest": Arg("list", default=()),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if getattr(context.task, "delegate_to", None):
        raise BadArgument(
            "rm's synchronize goes between the control machine and the host of the task, and takes no "
            "delegate_to; without it, rsync runs on the control machine"
        )
    for end in ("src", "dest"):
        if ":" in args[end].partition("/")[0]:
            raise BadArgument(
                f"'{end}' is {args[end]!r}: rm's synchronize goes between the control machine and the host "
                "of the task, so that neither is named"
            )
    if "" in args["rsync_opts"]:
        raise BadArgument("'rsync_opts' has an empty text, for which rsync transfers the current directory")
    here = "src" if args["mode"] == "push" else "dest"
    found = context.source(posixpath.expanduser(args[here]), "files")
    if args[here].endswith("/") and not found.endswith("/"):
        found += "/"
    return {**args, here: found, "rsync_opts": list(args["rsync_opts"]), "link_dest": list(args["link_dest"])}
