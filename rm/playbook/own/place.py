"""Where modules lie that are not rm's: beside the playbook, in roles, in collections of this machine."""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from rm.playbook.model.bounded_yaml import load_plain
from rm.playbook.model.problems import BadArgument, NeverRuns
from rm.playbook.module import Files
from rm.playbook.template.variables import ANSIBLE_VERSION
from rm.quick_dataclass import dataclass

ENDINGS = (".py", "", ".sh", ".pl", ".rb", ".bash")
REDIRECTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Installed:
    """What of Ansible is on this machine: the directory of the package `ansible` ("" = none), and the
    directories that hold `ansible_collections`. Nothing of it is ever imported by rm."""

    core: str = ""
    collections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configured:
    """The directories of modules and plug-ins that ansible.cfg names, which come after a playbook's own."""

    library: tuple[str, ...] = ()
    module_utils: tuple[str, ...] = ()
    action_plugins: tuple[str, ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()  # (kind, directory) of filters, tests and lookups


@dataclass(frozen=True, slots=True)
class Found:
    """A module's file, its full name, and the directories of `module_utils` that it may import from."""

    path: str
    name: str
    utils: tuple[str, ...] = ()
    action: str = ""  # an action plug-in of its name, without which it does something else


def installed(files: Files) -> Installed:
    found: Installed = getattr(files, "installed", Installed())
    return found


def core_version(files: Files) -> str:
    """The version of this machine's ansible-core; without one that as which rm's playbooks behave."""
    core = installed(files).core
    text = files.read(posixpath.join(core, "release.py")).decode(errors="replace") if core else ""
    match = re.search(r"^__version__ = ['\"]([\w.+-]+)['\"]", text, re.MULTILINE)
    return match[1] if match else str(ANSIBLE_VERSION["full"])


def configured(files: Files) -> Configured:
    found: Configured = getattr(files, "configured", Configured())
    return found


def own_places(directory: str, roles: Sequence[str]) -> tuple[str, ...]:
    """The directories that may hold `library/`, `module_utils/` and plug-ins, the nearest first."""
    return tuple(dict.fromkeys([*roles, directory]))


def beside(files: Files, name: str, places: Sequence[str]) -> Found | None:
    """A module in a `library/`; `name` is short."""
    more = configured(files)
    for library in (*(posixpath.join(place, "library") for place in places), *more.library):
        for ending in ENDINGS:
            path = posixpath.join(library, name + ending)
            if files.exists(path) and not files.glob(f"{glob.escape(path)}/*"):
                utils = (*(posixpath.join(one, "module_utils") for one in places), *more.module_utils)
                return Found(path, name, utils, action_beside(files, name, places))
    return None


def action_beside(files: Files, name: str, places: Sequence[str]) -> str:
    """The action plug-in of a short name in an `action_plugins/`, "" for none."""
    own = [posixpath.join(place, "action_plugins") for place in places]
    return _action(files, name, (*own, *configured(files).action_plugins))


def _action(files: Files, name: str, folders: Sequence[str]) -> str:
    paths = (posixpath.join(folder, f"{name}.py") for folder in folders)
    return next((path for path in paths if files.exists(path)), "")


def in_collections(files: Files, name: str, directory: str) -> Found | None:
    """A module of an installed collection, by its full name, or by the short one that it had in former times.

    Raises BadArgument where a collection says that the module is gone.
    """
    home = installed(files)
    tops = collection_tops(files, directory)
    if home.core and "." not in _of_core(name):
        routing = _routing(files, posixpath.join(home.core, "config", "ansible_builtin_runtime.yml"))
        name = routing.get(_of_core(name), {}).get("redirect", name)
    for _ in range(REDIRECTS_MAX):
        of_core = _of_core(name)
        if home.core and "." not in of_core:
            path = posixpath.join(home.core, "modules", f"{of_core}.py")
            action = posixpath.join(home.core, "plugins", "action", f"{of_core}.py")
            there = files.exists(path) and not files.exists(action)
            return Found(path, of_core) if there else None
        if name.count(".") < 2:
            return None
        space, collection, short = name.split(".", 2)
        root = _root(files, tops, space, collection)
        if not root:
            return None
        plugins = posixpath.join(root, "plugins")
        path = posixpath.join(plugins, "modules", *short.split(".")) + ".py"
        entry = _routing(files, posixpath.join(root, "meta", "runtime.yml")).get(short, {})
        if "tombstone" in entry:
            why = (entry["tombstone"] or {}).get("warning_text") or "it was removed from its collection"
            raise BadArgument(f"'{name}' is gone: {why}".rstrip(". \n"))
        if "redirect" in entry:
            name = str(entry["redirect"])
            continue
        if not files.exists(path):
            return None
        if files.exists(path.removesuffix("py") + "ps1"):
            raise NeverRuns(f"'{name}' is a module for Windows")
        action = _action(files, short, [posixpath.join(plugins, "action")])
        routed = entry.get("action_plugin", "")
        return Found(path, name, (), action or routed)
    return None


def _of_core(name: str) -> str:
    return name.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.")


def collection_tops(files: Files, directory: str) -> tuple[str, ...]:
    """The directories that may hold `ansible_collections`, the first first."""
    return (posixpath.join(directory, "collections"), *installed(files).collections)


def role_in_collection(files: Files, name: str, directory: str) -> str:
    """The directory of the role NAMESPACE.COLLECTION.ROLE, "" where there is none."""
    space, collection, short = name.split(".", 2)
    for top in collection_tops(files, directory):
        path = posixpath.join(top, "ansible_collections", space, collection, "roles", short)
        if files.exists(path):
            return posixpath.normpath(path)
    return ""


def collection_of(path: str) -> str:
    """NAMESPACE.NAME of the collection in which a role's directory lies, "" for none."""
    parts = path.split("/")
    inside = len(parts) >= 5 and parts[-5] == "ansible_collections" and parts[-2] == "roles"
    return f"{parts[-4]}.{parts[-3]}" if inside else ""


def _root(files: Files, tops: Sequence[str], space: str, collection: str) -> str:
    roots = (posixpath.join(top, "ansible_collections", space, collection) for top in tops)
    return next((root for root in roots if files.exists(posixpath.join(root, "plugins"))), "")


@lru_cache(maxsize=64)  # collections change, while a daemon reads playbooks
def _routed(text: bytes) -> dict[str, dict[str, Any]]:
    document = load_plain(text.decode())
    routing = (document or {}).get("plugin_routing") or {}
    return {str(name): entry or {} for name, entry in (routing.get("modules") or {}).items()}


def _routing(files: Files, path: str) -> dict[str, dict[str, Any]]:
    return _routed(files.read(path)) if files.exists(path) else {}


def collection_file(files: Files, directory: str, parts: Sequence[str]) -> Iterator[str]:
    """Where `ansible_collections.NAMESPACE.NAME.…` may lie, without the ending."""
    for top in collection_tops(files, directory):
        yield posixpath.join(top, *parts)
