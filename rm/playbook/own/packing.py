"""A Python module with all that it imports of `ansible.module_utils` and of collections, as a zip for hosts.

The code comes from the ansible-core that is installed on this machine, as files: rm imports none of it.
Without one, only modules can run that import nothing of it.
"""

from __future__ import annotations

import ast
import io
import posixpath
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Files
from rm.playbook.own.place import Found, collection_file, core_version, installed
from rm.playbook.own.style import COMMON
from rm.python_text import parsed

UTILS = ("ansible", "module_utils")
SIX = (*UTILS, "six")  # it makes its inner modules itself
FILES_KEPT = 1024
FIRST = (1980, 1, 1, 0, 0, 0)  # so that the same code is the same bytes
# what ansible-core 2.19 and newer import by a name that they put together
_BY_NAME = ("_internal._json._profiles._module_legacy_c2m", "_internal._json._profiles._module_legacy_m2c")
_PATHS = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"

Dotted = tuple[str, ...]


def packed_module(found: Found, text: bytes, files: Files, directory: str) -> tuple[bytes, str]:
    """The zip, and the module's name in it. Raises BadArgument where this machine lacks something of it."""
    home = installed(files)
    if not home.core:
        raise BadArgument(
            f"the module '{found.name}' needs ansible.module_utils, and this machine has no ansible-core: "
            "install it here ('pip install ansible-core')"
        )
    own: Dotted = tuple(found.name.split("."))
    if len(own) > 2:
        own = ("ansible_collections", *own[:2], "plugins", "modules", *own[2:])
    else:
        own = ("ansible", "modules", own[-1])
    packer = _Packer(found, files, directory)
    packer.texts[own] = (text.replace(COMMON, b"from ansible.module_utils.basic import *"), False)
    packer.follow(own)
    for name in (("basic",), *(tuple(one.split(".")) for one in _BY_NAME)):
        packer.add((*UTILS, *name), needed=name == ("basic",), of=found.name)
    return _zipped(packer.texts, core_version(files)), ".".join(own)


class _Packer:
    """Follows imports from file to file."""

    def __init__(self, found: Found, files: Files, directory: str) -> None:
        self.found, self.files, self.directory = found, files, directory
        self.texts: dict[Dotted, tuple[bytes, bool]] = {}  # text, and is it a package?

    def places(self, name: Dotted) -> Iterator[str]:
        """Where the code of a dotted name may lie, without the ending."""
        if name[:2] == UTILS:
            for place in self.found.utils:
                yield posixpath.join(place, *name[2:])
            yield posixpath.join(installed(self.files).core, *name[1:])
        elif name[0] == "ansible_collections":
            yield from collection_file(self.files, self.directory, name)

    def add(self, name: Dotted, needed: bool, of: str) -> bool:
        """Take the code of a dotted name, and what it needs; whether there is any."""
        if name[:3] == SIX:
            name = SIX
        if name in self.texts or name in (UTILS, UTILS[:1]):
            return True
        for place in self.places(name):
            for path, package in ((f"{place}.py", False), (f"{place}/__init__.py", True)):
                if self.files.exists(path):
                    self.texts[name] = (self.files.read(path), package)
                    self.follow(name)
                    self.above(name)
                    return True
            if self.files.exists(place):  # a directory without an __init__.py
                self.texts[name] = (b"", True)
                self.above(name)
                return True
        if needed:
            raise BadArgument(f"'{of}' imports {'.'.join(name)}, which is not on this machine")
        return False

    def above(self, name: Dotted) -> None:
        for length in range(3, len(name)):
            self.add(name[:length], False, "")

    def follow(self, name: Dotted) -> None:
        text, package = self.texts[name]
        try:
            imports = _imports(text, name if package else name[:-1])
        except (SyntaxError, ValueError) as problem:
            raise BadArgument(f"{'.'.join(name)} is not Python: {problem}") from None
        for dotted, names, certain in imports:
            there = self.add(dotted, False, "") if len(dotted) > 2 or dotted == UTILS else True
            if not there and len(dotted) > 3 and self.add(dotted[:-1], False, ""):
                continue  # the last word is something in that file
            if not there and certain:
                raise BadArgument(
                    f"'{self.found.name}' imports {'.'.join(dotted)}, which is not on this machine"
                )
            for one in names:
                self.add((*dotted, one), needed=dotted == UTILS and certain, of=self.found.name)


def _ours(name: Dotted) -> bool:
    return name[:2] == UTILS or (name[:1] == ("ansible_collections",) and len(name) > 2)


@lru_cache(FILES_KEPT)  # modules share most of what they import
def _imports(text: bytes, around: Dotted) -> tuple[tuple[Dotted, tuple[str, ...], bool], ...]:
    """(what is imported from, the names, whether it must be there) of every import of Ansible's in a file.
    Raises SyntaxError, ValueError."""
    found: list[tuple[Dotted, tuple[str, ...], bool]] = []
    level: list[tuple[Any, bool]] = [(parsed(text), True)]
    while level:
        node, certain = level.pop()
        if isinstance(node, ast.Import):
            found += [(tuple(alias.name.split(".")), (), certain) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = around[: len(around) - node.level + 1] if node.level else ()
            words = tuple(node.module.split(".")) if node.module else ()
            found.append(((*base, *words), tuple(alias.name for alias in node.names), certain))
        inner = certain and not isinstance(node, (ast.Try, ast.If, ast.FunctionDef))
        level += [(child, inner) for child in ast.iter_child_nodes(node)]
    return tuple(one for one in found if _ours(one[0]))


def _zipped(texts: dict[Dotted, tuple[bytes, bool]], version: str) -> bytes:
    entries: dict[str, bytes] = {}
    for name, (text, package) in texts.items():
        entries["/".join(name) + ("/__init__.py" if package else ".py")] = text
        for length in range(1, len(name)):
            if name[:length] not in texts:
                entries.setdefault("/".join(name[:length]) + "/__init__.py", b"")
    about = f'__version__ = "{version}"\n__author__ = "Ansible, Inc."\n'
    for top in ("ansible/__init__.py", "ansible/module_utils/__init__.py"):
        entries[top] = (_PATHS + (about if top == "ansible/__init__.py" else "")).encode()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(entries):
            file.writestr(zipfile.ZipInfo(path, FIRST), entries[path], zipfile.ZIP_DEFLATED)
    return data.getvalue()
