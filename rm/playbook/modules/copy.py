"""`copy`: a file on the host has exactly this content; a local directory is copied as a tree."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from rm.playbook.model.located import VAULTED
from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext, mode_of, packed

ARGS = {
    "src": Arg(),
    "content": Arg("raw"),
    "dest": Arg(required=True),
    "backup": Arg("bool", default=False),
    "checksum": Arg(),
    "decrypt": Arg("bool", default=True),
    "follow": Arg("bool", default=False),
    "force": Arg("bool", default=True),
    "local_follow": Arg("bool"),  # true, but for directories that are on the host, as Ansible does
    "validate": Arg(),
    "directory_mode": Arg("mode"),
    "remote_src": Arg("bool", default=False),
    **OWNERSHIP,
    "mode": Arg("raw"),  # also "preserve"
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if (args["src"] is None) == (args["content"] is None):
        raise BadArgument("give either 'src' or 'content'")
    rest = {k: v for k, v in args.items() if k not in ("src", "content", "remote_src", "decrypt")}
    keeps = args["mode"] == "preserve"
    if args["mode"] is not None and not keeps:
        rest["mode"] = mode_of("mode", args["mode"])
    if args["content"] is not None:
        if keeps:  # Ansible puts it into a file of its own first
            rest["mode"] = mode_of("mode", "0600")
        if args["dest"].endswith("/"):
            raise BadArgument("'content' needs a file's name in 'dest'")
        content = args["content"]
        text = json.dumps(content) if isinstance(content, (dict, list)) else str(content)
        if args["decrypt"] and text.startswith(VAULTED):  # Ansible would open it, or fail
            raise BadArgument("'content' is encrypted: 'decrypt: false' copies it so, 'unvault' opens it")
        return {**rest, "content": packed(text.encode()), "name": ""}
    if args["remote_src"]:
        return {**rest, "remote_src": args["src"]}
    source = context.source(args["src"].rstrip("/"), "files")
    decrypt: bool = args["decrypt"]
    names, directories, links = context.files.tree(source, args["local_follow"] is not False)
    if directories:
        above = "" if args["src"].endswith("/") else posixpath.basename(source)
        where = {
            name: posixpath.normpath(posixpath.join(above, name)) for name in (*names, *directories, *links)
        }
        paths = {where[name]: posixpath.join(source, name) for name in names}
        return {
            **rest,
            "files": {name: packed(context.files.read(path, decrypt)) for name, path in paths.items()},
            "directories": [where[name] for name in directories],
            **({"links": {where[name]: target for name, target in links.items()}} if links else {}),
            **({"modes": {name: context.files.mode(path) for name, path in paths.items()}} if keeps else {}),
        }
    if keeps:
        rest["mode"] = context.files.mode(source)
    return {
        **rest,
        "content": packed(context.files.read(source, decrypt)),
        "name": posixpath.basename(source),
    }
