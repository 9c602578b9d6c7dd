"""`include_vars`: variables of this host from a local file, or from all files of a directory."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from rm.errors import RmError
from rm.playbook.model.located import load
from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "_raw": Arg(),
    "file": Arg(),
    "dir": Arg(),
    "name": Arg(),
    "depth": Arg("int", default=0),
    "files_matching": Arg(),
    "ignore_files": Arg("list", default=()),
    "extensions": Arg("list", default=("yaml", "yml", "json")),
    "ignore_unknown_extensions": Arg("bool", default=False),
    "hash_behaviour": Arg(choices=("replace", "merge")),
}
FREE_FORM = "_raw"
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    name = args["file"] or args["_raw"]
    if (name is None) == (args["dir"] is None):
        raise BadArgument("give either 'file' or 'dir'")
    paths = [context.source(name, "vars")] if name is not None else _in_directory(args, context)
    found: dict[str, Any] = {}
    for path in paths:
        try:
            text = context.files.read(path).decode()
            values = load(text, path, decrypt=getattr(context.files, "decrypt", None))
        except (RmError, UnicodeDecodeError) as problem:
            raise BadArgument(f"{problem}".rstrip(".")) from None
        if not isinstance(values or {}, dict):
            raise BadArgument(f"{path} is not a mapping of variables")
        found.update(values or {})
    brought = {args["name"]: found} if args["name"] else found
    return {"failed": False, "result": {"included_vars": brought, "ansible_included_var_files": paths}}


def _in_directory(args: dict[str, Any], context: CompileContext) -> list[str]:
    top = context.source(args["dir"], "vars").rstrip("/")
    wanted = re.compile(args["files_matching"]) if args["files_matching"] else None
    found = []
    for path in context.files.glob(f"{top}/**"):
        inside = posixpath.relpath(path, top)
        deep = inside.count("/") + 1
        if path.rpartition(".")[2] not in args["extensions"] or (args["depth"] and deep > args["depth"]):
            continue
        if wanted is not None and not wanted.search(posixpath.basename(path)):
            continue
        if any(re.search(one, posixpath.basename(path)) for one in args["ignore_files"]):
            continue
        found.append(path)
    if not found and not context.files.exists(top):
        raise BadArgument(f"there is no directory {top}")
    return found
