"""The numbers that scenarios take from somewhere, with their sources: `parameters.toml`.

    [ethernet]
    mss_bytes = { value = 1448, source = "RFC 9293 …" }

Names carry their units; a value is a number, a text, or a list of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rm.errors import ConfigError

PATH = Path(__file__).parents[1] / "parameters.toml"


def parameters(section: str) -> Mapping[str, Any]:
    """The values of a section, by name.

    Raises:
        ConfigError: there is no such section, or a value lacks its source.
    """
    known = _sections(PATH)
    if section not in known:
        raise ConfigError(f"{PATH.name} has no section [{section}].", f"It has: {', '.join(known)}.")
    return known[section]


@cache
def _sections(path: Path) -> Mapping[str, Mapping[str, Any]]:
    return {
        section: {
            name: _value(entry, f"[{section}] {name} of {path.name}") for name, entry in entries.items()
        }
        for section, entries in tomllib.loads(path.read_text()).items()
    }


def _value(entry: Any, where: str) -> Any:
    if not isinstance(entry, dict) or entry.keys() != {"value", "source"} or not str(entry["source"]).strip():
        raise ConfigError(f"{where} is not {{ value = …, source = … }}.", "Every number needs its source.")
    return entry["value"]
