"""A module that is not rm's, in the shape of rm's own: any argument, carried out by its own program."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rm.playbook.model.keywords import short
from rm.playbook.model.problems import BadArgument, NeverRuns
from rm.playbook.module import Arg, CompileContext, Files, packed
from rm.playbook.modules import own_name, registry
from rm.playbook.own.place import Found, action_beside, beside, core_version, in_collections, own_places
from rm.playbook.own.style import JSON_ARGS, style_of

# the action plug-ins of ansible-core 2.19: a task of such a name is theirs, whatever lies in `library/`
BUILT_IN_ACTIONS = frozenset((
    "add_host", "assemble", "assert", "async_status", "command", "copy", "debug", "dnf", "fail", "fetch",
    "gather_facts", "group_by", "include_vars", "package", "pause", "raw", "reboot", "script", "service",
    "set_fact", "set_stats", "shell", "template", "unarchive", "uri", "validate_argument_spec",
    "wait_for_connection", "yum",
))  # fmt: skip


class OwnModule(ModuleType):
    """Its step's operation is `own_module`."""

    EXECUTOR = "own_module"
    ANY_ARGUMENT = True
    FACTS = ("*",)  # it may bring any
    ARGS: dict[str, Arg] = {}  # noqa: RUF012 - as in rm's modules

    def __init__(self, found: Found, files: Files, directory: str) -> None:
        """Raises BadArgument where it cannot run."""
        super().__init__(f"own.{found.name}")
        self.found, self._sent = found, _sent(found, files, directory)
        self._files = weakref.ref(files)  # the module stays with the process, what a run has read does not

    def compile(self, args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
        return {**self._sent, "arguments": args}

    def is_of(self, found: Found, files: Files) -> bool:
        """Is it this very module, read by this run?"""
        return self.found == found and self._files() is files


def _sent(found: Found, files: Files, directory: str) -> dict[str, Any]:
    """What travels besides the arguments; raises BadArgument."""
    text = files.read(found.path)
    if found.action:
        raise NeverRuns(f"'{found.name}' has an action plug-in, {found.action}, which rm does not run")
    style, module = style_of(text, found.name), found.name
    if style.kind == "python":
        from rm.playbook.own.packing import packed_module  # most playbooks need none

        text, module = packed_module(found, text, files, directory)
    return {
        "content": packed(text), "kind": style.kind, "interpreter": list(style.interpreter),
        "module": module, "name": found.name, "marker": JSON_ARGS.decode(), "version": core_version(files),
    }  # fmt: skip


def own_module(
    files: Files, directory: str, roles: list[str], written: str, collections: Sequence[str] = ()
) -> str:
    """The registry's name of a module that a playbook calls `written` and that is not rm's; "" = none.

    As with Ansible a module of `collections`, and after that one in a `library/`, is stronger than one of the
    same short name. Raises BadArgument where there is one that cannot run.
    """
    if "/" in written:  # a path, which Ansible does not follow either
        return ""
    known = registry()
    for collection in collections if "." not in written else ():
        if collection not in ("ansible.builtin", "ansible.legacy"):
            full = f"{collection}.{written}"
            if full in known:
                return full
            if in_collections(files, full, directory) is not None:
                return own_module(files, directory, roles, full)
    legacy = written.removeprefix("ansible.legacy.")
    places = own_places(directory, roles)
    found = beside(files, legacy, places) if "." not in legacy else None
    if found is None and "." not in legacy and (action := action_beside(files, legacy, places)):
        raise NeverRuns(f"'{written}' has an action plug-in, {action}, which rm does not run")
    if found is not None and legacy in BUILT_IN_ACTIONS:
        raise BadArgument(
            f"{found.path} stands for '{legacy}', around which ansible-core runs an action plug-in of its own"
            f" and rm does not; give the module another name, or write 'ansible.builtin.{legacy}' for rm's"
        )
    if found is None and written not in known:
        found = in_collections(files, written, directory)
    if found is None:
        return ""
    name = own_name(short(written), found.path)
    one = known.get(name)
    if isinstance(one, OwnModule) and one.is_of(found, files):
        return name
    known[name] = OwnModule(found, files, directory)
    return name
