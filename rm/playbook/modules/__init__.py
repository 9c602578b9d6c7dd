"""The playbook modules, one file each, found by file name; `rm/playbook/module.py` says their shape."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any


@cache
def registry() -> dict[str, ModuleType]:
    """Every module by its names, Ansible's fully qualified forms included."""
    found: dict[str, ModuleType] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        short = info.name.rstrip("_")  # assert_.py: a Python word
        for name in (short, *getattr(module, "ALIASES", ())):
            found[name] = module
            collections = {
                "ansible.builtin",
                "ansible.legacy",
                getattr(module, "COLLECTION", "ansible.builtin"),
            }
            for collection in () if name.startswith("rm_") else collections:
                found[f"{collection}.{name}"] = module
    return found


def control(name: str) -> bool:
    """Is the module of this name carried out by the control machine?"""
    return bool(getattr(registry()[name], "CONTROL", False))


def brings_facts(name: str) -> bool:
    """Does the module of this name answer with facts, other than `setup` does?"""
    return bool(getattr(registry().get(name), "FACTS", ()))  # includes are no modules


def facts_of(name: str, args: Mapping[str, Any]) -> frozenset[str]:
    """The names of the facts that a step of the module of this name may bring."""
    return frozenset(fact.format_map(args) for fact in getattr(registry()[name], "FACTS", ()))


def executor_of(module: ModuleType) -> str:
    return str(getattr(module, "EXECUTOR", module.__name__.rpartition(".")[2].rstrip("_")))
