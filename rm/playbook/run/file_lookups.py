"""Lookups of single values in files of this machine: `ini` and `csvfile`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.read.words import assigned, words_of
from rm.playbook.run.sought import Sought
from rm.playbook.template.filters import to_bool

_PROPERTIES = "java_properties"
_INI: dict[str, Any] = {
    "type": "ini", "file": "ansible.ini", "section": "global", "re": False, "encoding": "utf-8",
    "default": "", "case_sensitive": False, "interpolation": True, "allow_no_value": False,
    "allow_none": False,
}  # fmt: skip
_CSV: dict[str, Any] = {
    "col": "1", "keycol": "0", "default": "", "delimiter": "TAB", "file": "ansible.csv", "encoding": "utf-8",
}  # fmt: skip


def ini(call: Sought) -> list[Any]:
    """The values of keys in a file's section; with `re` of all keys that a pattern matches. A value that is
    None is left out."""
    import configparser  # few playbooks ask for such a file

    found: list[Any] = []
    for term in map(str, call.terms):
        key, options = _asked(term, _INI, call.options)
        parser = configparser.ConfigParser(
            allow_no_value=any(to_bool(options[name]) for name in ("allow_no_value", "allow_none")),
            interpolation=configparser.BasicInterpolation() if to_bool(options["interpolation"]) else None,
        )
        if to_bool(options["case_sensitive"]):
            parser.optionxform = str  # type: ignore[assignment, method-assign]
        section, text = str(options["section"]), _text(call, options)
        if options["type"] == "properties":
            section, text = _PROPERTIES, f"[{_PROPERTIES}]\n{text}"
        try:
            parser.read_string(text, str(options["file"]))
            if to_bool(options["re"]):
                found += [value for name, value in parser.items(section) if re.match(key, name)]
            else:
                there = parser.has_option(section, key) or not parser.has_section(section)
                value = parser.get(section, key) if there else options["default"]
                found += [] if value is None else [value]
        except (configparser.Error, re.error) as problem:
            raise BadArgument(f"{options['file']}: {_line(problem)}") from None
    return found


def csvfile(call: Sought) -> list[Any]:
    """The columns `col` of the first rows that have the keys in `keycol`."""
    import csv

    found: list[Any] = []
    for term in map(str, call.terms):
        key, options = _asked(term, _CSV, call.options)
        delimiter = "\t" if options["delimiter"] == "TAB" else str(options["delimiter"])
        try:
            column, of_key = int(options["col"]), int(options["keycol"])
            rows = csv.reader(io.StringIO(_text(call, options), newline=""), delimiter=delimiter)
            value = next((row[column] for row in rows if row and row[of_key] == key), options["default"])
        except (csv.Error, TypeError, ValueError) as problem:
            raise BadArgument(f"{options['file']}: {_line(problem)}") from None
        except IndexError:
            raise BadArgument(f"{options['file']}: a row lacks column {max(column, of_key)}") from None
        if value is not None:
            found.append(value)
    return found


def _asked(term: str, usual: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The key that a term asks for, and the options: the usual ones, the call's, those in the term itself."""
    _known(given, usual)
    keys: list[str] = []
    inline: dict[str, str] = {}
    try:
        for word, _ in words_of(term) if "=" in term else ((term, ""),):
            pair = assigned(word) if "=" in term else None
            if pair is None:
                keys.append(word)
            else:
                inline[pair[0]] = pair[1]
    except ValueError as problem:
        raise BadArgument(f"'{term}' cannot be read: {problem}") from None
    _known(inline, usual)
    if not keys:
        raise BadArgument(f"'{term}' names no key")
    return " ".join(keys), {**usual, **given, **inline}


def _known(options: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    for name in options:
        if name not in usual:
            raise BadArgument(f"it has no option '{name}'")


def _text(call: Sought, options: Mapping[str, Any]) -> str:
    path = call.path(str(options["file"]), "files")
    try:
        return call.files.read(path).decode(str(options["encoding"]))
    except (UnicodeDecodeError, LookupError) as problem:
        raise BadArgument(f"{path}: {_line(problem)}") from None


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())


FILE_LOOKUPS: dict[str, Callable[[Sought], list[Any]]] = {"ini": ini, "csvfile": csvfile}
