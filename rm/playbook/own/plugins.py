"""Filters and tests that a playbook, a role or a collection brings along become known to templates."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from rm.playbook.module import Files
from rm.playbook.template.filters import LOOKUPS
from rm.playbook.template.jinja import BUILTIN, ENVIRONMENT, OWN_LOOKUPS, Own
from rm.playbook.template.plugins import is_asked_for, know

TEXT_MAX_BYTES = 1 << 20
_NAME = rb"([a-z_]\w*\.[a-z_]\w*\.[a-z_]\w*)"
_USED = (
    ("filter", re.compile(rb"\|\s*" + _NAME)),
    ("test", re.compile(rb"\bis\s+(?:not\s+)?" + _NAME)),
    ("lookup", re.compile(rb"\b(?:lookup|query|q)\s*\(\s*['\"]" + _NAME)),
    ("lookup", re.compile(rb"\bwith_" + _NAME)),
)
_TABLES: dict[str, Collection[str]] = {
    "filter": ENVIRONMENT.filters, "test": ENVIRONMENT.tests, "lookup": OWN_LOOKUPS,
}  # fmt: skip
BUILT_IN = frozenset((*LOOKUPS, *(f"{BUILTIN}{name}" for name in LOOKUPS)))


class Plugins(Protocol):
    """Who runs them. Each raises BadArgument, with the file, where a plug-in does not do."""

    def names(self) -> Collection[tuple[str, str]]:
        """The (kind, name) of those that are known by now, and of what may be one."""
        ...

    def learn(self, place: str) -> list[tuple[str, str]]:
        """The (kind, name) of those, and of what may be one, of a role's or a playbook's directory. No code
        of theirs runs."""
        ...

    def find(self, kind: str, name: str, directory: str) -> bool:
        """Is there, or may there be, one of a collection of this full name?"""
        ...

    def has(self, kind: str, name: str) -> bool:
        """Is there one of this name, now that it is used?"""
        ...

    def call(self, kind: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...


def plugins_of(files: Files) -> Plugins | None:
    found: Plugins | None = getattr(files, "plugins", None)
    return found


def own_of(files: Files) -> Own:
    """What to ask for the plug-ins of this run, or what may be one, as they become known."""
    plugins = plugins_of(files)
    return plugins.names if plugins is not None else tuple


def learn_place(files: Files, place: str) -> None:
    """Raises BadArgument."""
    plugins = plugins_of(files)
    for kind, name in plugins.learn(place) if plugins is not None else ():
        know(kind, name)


def learn_named(plugins: Plugins, text: bytes, directory: str) -> None:
    """Those of collections that a text names in full."""
    if len(text) > TEXT_MAX_BYTES or b"." not in text:
        return
    for kind, used in _USED:
        table = _TABLES[kind]
        for name in {word.decode() for word in used.findall(text)} - BUILT_IN:
            ours = name in table and kind != "lookup" and not is_asked_for(kind, name)
            if not ours and plugins.find(kind, name, directory):
                know(kind, name)
