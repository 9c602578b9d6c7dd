"""Listed tables of rm.toml, `[[monitor.mesh]]` and `[[monitor.source]]`: a name, and keys that are known."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from rm.errors import ConfigError
from rm.hints import did_you_mean

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def heading(kind: str, table: Mapping[str, Any], known: Collection[str]) -> tuple[str, str]:
    """The table's name, and how an error calls it: ("gpu", "[[monitor.mesh]] 'gpu'").

    Raises:
        ConfigError: the name is none, or a key is not among `known`.
    """
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"[[monitor.{kind}]] has the name {name!r:.60}.",
            f"Name each {kind}: letters, digits, dots, hyphens and underscores.",
        )
    where = f"[[monitor.{kind}]] '{name}'"
    for key in table:
        if key not in known:
            raise ConfigError(f"{where} has no key '{key}'.", did_you_mean(str(key), known))
    return name, where


def names_of(value: object) -> tuple[str, ...]:
    """A key's list of names; ConfigError where it is none."""
    if isinstance(value, list | tuple) and all(isinstance(v, str) and v for v in value):
        return tuple(value)
    raise ConfigError(f"{value!r:.60} is not a list of names.")
