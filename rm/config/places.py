"""Where what a sentence about the configuration speaks of was set: a file and line, a variable or a flag."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rm.compiled_later import compiled_later

_HEADER = compiled_later(r"\s*\[(\[?)\s*([\w.\-\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = compiled_later(r"\s*([\w.\-\"']+)\s*=")
# what sentences call it: [[monitor.mesh]] 'gpu', [regulate], policies.queue
_CALLED = compiled_later(
    r"\[\[(?P<tables>[\w.]+)\]\](?: '(?P<name>[^']*)')?|\[(?P<section>[\w.\-]+)\]"
    r"|\b(?P<key>[a-z]+(?:\.[\w\-]+)+)"
)
_KEY_OF_IT = compiled_later(r"(?: has no key '|, )([\w\-]+)")


def line_numbers(text: str) -> dict[str, int]:
    """Dotted key -> line; TOML's odder spellings are not found. A section has its name as key, the
    second [[monitor.mesh]] has `monitor.mesh[1]`, and `monitor.mesh` is the line of the first one."""
    found: dict[str, int] = {}
    section = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = re.sub(r"[\"' ]", "", header[2])
            found.setdefault(section, number)
            if header[1]:
                count = counts.get(section, 0)
                counts[section], section = count + 1, f"{section}[{count}]"
                found[section] = number
        elif key := _KEY.match(line):
            name = re.sub(r"[\"' ]", "", key[1])
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def located(sentence: str, origins: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """The sentence with the origin of the first thing in it that has one; as it is where nothing has.

    Args:
        origins: dotted key, as `line_numbers` has it -> where it was set. What has its default has none.
        values: dotted key -> value, for the names of listed tables.
    """
    for called in _CALLED.finditer(sentence):
        more = _KEY_OF_IT.match(sentence, called.end())
        if found := _origin(called, more[1] if more else "", origins, values):
            return f"{sentence[: called.end()]} ({found}){sentence[called.end() :]}"
    return sentence


def _origin(
    called: re.Match[str], key: str, origins: Mapping[str, str], values: Mapping[str, Any]
) -> str | None:
    whole = called["key"] or called["section"] or _table(called["tables"], called["name"], values)
    return origins.get(f"{whole}.{key}") or origins.get(whole)


def _table(kind: str, name: str | None, values: Mapping[str, Any]) -> str:
    """The key of the last table of that name; without a name, of the only one."""
    tables: Sequence[Any] = values.get(kind, ())
    fitting = [
        number
        for number, table in enumerate(tables)
        if name is None or (isinstance(table, Mapping) and table.get("name") == name)
    ]
    one_fits = bool(fitting) if name is not None else len(fitting) == 1
    return f"{kind}[{fitting[-1]}]" if one_fits else ""
