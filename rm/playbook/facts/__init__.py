"""Facts: what a host said about itself, as raw texts, to the names that playbooks use.

One file each; every file but `subset` defines `facts(raw) -> dict` of names without the `ansible_` prefix.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any


@cache
def _sources() -> tuple[ModuleType, ...]:
    import pkgutil

    names = (info.name for info in pkgutil.iter_modules(__path__) if info.name != "subset")
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in sorted(names))


def gather(raw: Mapping[str, Any]) -> dict[str, Any]:
    """All facts of one host from the executor's raw answer (`setup` in agents/rm_steps_setup.py)."""
    found: dict[str, Any] = {}
    for source in _sources():
        found.update(source.facts(raw))
    return found
