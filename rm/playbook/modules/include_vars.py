"""`include_vars`: variables of this host from a local file, or from all files of a directory."""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from rm.errors import RmError
from rm.playbook.model.located import load, untemplated
from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext
from rm.playbook.template.filters import FILTERS

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
    if args["hash_behaviour"] == "merge":
        brought = {name: _added_to(context.scope.lookup(name), new) for name, new in brought.items()}
    return {"failed": False, "result": {"included_vars": brought, "ansible_included_var_files": paths}}


def _in_directory(args: dict[str, Any], context: CompileContext) -> list[str]:
    top = context.source(args["dir"], "vars").rstrip("/")
    wanted = re.compile(args["files_matching"]) if args["files_matching"] else None
    found = []
    # as Ansible: a directory's own files before those of the directories in it
    for path in sorted(context.files.glob(f"{glob.escape(top)}/**"), key=posixpath.split):
        name = posixpath.basename(path)
        deep = posixpath.relpath(path, top).count("/") + 1
        if args["depth"] and deep > args["depth"]:
            continue
        if wanted is not None and not wanted.search(name):
            continue
        if any(re.search(f"{one}$", name) for one in args["ignore_files"]):
            continue
        if posixpath.splitext(name)[1][1:] in args["extensions"]:
            found.append(path)
        elif not args["ignore_unknown_extensions"]:
            raise BadArgument(f"{path} has none of the extensions {', '.join(args['extensions'])}")
    if not found and not context.files.exists(top):
        raise BadArgument(f"there is no directory {top}")
    return found


def _added_to(old: Any, new: Any) -> Any:
    """What `new` makes of the variable's value so far: mappings are merged, anything else is replaced."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    # templates in the old one have been evaluated, or came from a host and never are
    merged: dict[str, Any] = FILTERS["combine"](untemplated(old), new, recursive=True)
    return merged
