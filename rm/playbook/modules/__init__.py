"""The playbook modules, one file each, found by file name; `rm/playbook/module.py` says their shape."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from types import ModuleType
from typing import Any

from rm.playbook.model.keywords import short

ALIASES = {  # a module's file -> other names of it
    "dnf": ("dnf5", "yum"),
    "service": ("sysvinit",),
    "setup": ("gather_facts",),
    "systemd": ("systemd_service",),
    "x509_certificate": ("openssl_certificate",),
}
COLLECTIONS = {  # where Ansible keeps the modules that are not ansible.builtin's
    "ansible.posix": (
        "authorized_key", "firewalld", "mount", "seboolean", "selinux", "synchronize", "sysctl",
    ),
    "community.crypto": ("openssl_csr", "openssl_privatekey", "x509_certificate"),
    "community.general": (
        "alternatives", "filesystem", "ini_file", "modprobe", "seport", "timezone", "ufw",
    ),
    "ansible.mysql": ("mysql_db", "mysql_user"),
    "community.mysql": ("mysql_db", "mysql_user"),
    "community.postgresql": ("postgresql_db", "postgresql_user"),
}  # fmt: skip
BUILTIN = ("ansible.builtin", "ansible.legacy")


class Registry(MutableMapping[str, ModuleType]):
    """Every module by its names, Ansible's fully qualified forms included. A file is loaded when somebody
    asks for what is in it: a playbook has a tenth of the modules.

    What is put in lies beside one playbook, and has an `own_name`: no task calls it that, so that the other
    playbooks of the process, which other threads may read at once, never meet it.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)
        self._loaded: dict[str, ModuleType] = {}
        self._own: dict[str, ModuleType] = {}

    def __getitem__(self, name: str) -> ModuleType:
        found = self._loaded.get(name) or self._own.get(name)
        if found is None:
            found = self._loaded[name] = importlib.import_module(f"{__name__}.{self._files[name]}")
        return found

    def __setitem__(self, name: str, module: ModuleType) -> None:
        self._own[name] = module

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in self._own

    def __iter__(self) -> Iterator[str]:
        return iter((*self._files, *self._own))

    def __len__(self) -> int:
        return len(self._files) + len(self._own)

    def shipped(self) -> list[str]:
        """The names of rm's own modules, in order: what may be proposed to everybody. The others belong to
        the one playbook that lies beside them."""
        return sorted(self._files)


@cache
def registry() -> Registry:
    found: dict[str, str] = {}
    files = [name for path in __path__ for name in os.listdir(path) if name.endswith(".py")]
    for file in sorted(name.removesuffix(".py") for name in files if name != "__init__.py"):
        short = file.rstrip("_")  # assert_.py: a Python word
        for name in (short, *ALIASES.get(file, ())):
            found[name] = file
            collections = [collection for collection, its in COLLECTIONS.items() if file in its]
            for collection in () if name.startswith("rm_") else (*BUILTIN, *collections):
                found[f"{collection}.{name}"] = file
    return Registry(found)


def own_name(written: str, path: str) -> str:
    """The registry's name of a module that lies in a file and that a playbook calls `written`."""
    return f"{written} ({path})"


def called(name: str) -> str:
    """What a playbook calls the module of this name of the registry."""
    return name.partition(" (")[0]


def control(name: str) -> bool:
    """Is the module of this name carried out by the control machine?"""
    return bool(getattr(registry()[name], "CONTROL", False))


def changes_groups(name: str) -> bool:
    """Does the module of this name let hosts join groups?"""
    return short(name) in ("add_host", "group_by")


def brings_facts(name: str) -> bool:
    """Does the module of this name answer with facts, other than `setup` does?"""
    return bool(getattr(registry().get(name), "FACTS", ()))  # includes are no modules


def facts_of(name: str, args: Mapping[str, Any]) -> frozenset[str]:
    """The names of the facts that a step of the module of this name may bring."""
    return frozenset(fact.format_map(args) for fact in getattr(registry()[name], "FACTS", ()))


def executor_of(module: ModuleType) -> str:
    return str(getattr(module, "EXECUTOR", module.__name__.rpartition(".")[2].rstrip("_")))
