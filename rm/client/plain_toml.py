"""One table of a TOML file that has nothing but tables of plain values, as an rm.toml.

Commands that scripts call in loops need two keys of it, and loading `tomllib` takes a fifth of their time.
What is not plain is left to it: strings with escapes, dates, dotted keys, values over several lines, and
whatever may be wrong. So a text that is no TOML is never read here.

Source: TOML 1.0.0.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KEY = frozenset(f"{_LETTERS}{_LETTERS.upper()}0123456789_-")
_WORDS = {"true": True, "false": False, "{}": {}}


class _NotPlain(ValueError):
    """For `tomllib`."""


def plain_table(text: str, name: str) -> dict[str, Any] | None:
    """The table of this name, which has no dot; empty where the text has none; None: `tomllib` has to say."""
    tables: dict[str, dict[str, Any]] = {"": {}}
    keys, lists = tables[""], 0
    headed: set[str] = set()
    try:
        for line in text.replace("\r\n", "\n").split("\n"):
            rest = line.strip(" \t")
            if not rest or rest[0] == "#":
                _must_be_comment(rest)
            elif rest[0] == "[":
                header, of_list, after = _header(rest)
                _must_be_comment(after)
                if of_list:
                    lists += 1
                    headed.add(header)
                if of_list != (header in headed) or (not of_list and header in tables):
                    return None
                keys = tables.setdefault(f"{header}#{lists}" if of_list else header, {})
            else:
                key, value, after = _pair(rest)
                _must_be_comment(after)
                if key in keys:
                    return None
                keys[key] = value
    except _NotPlain:
        return None
    if name in headed or name in tables[""] or not _stand_apart(tables, headed):
        return None
    return tables.get(name, {})


def _stand_apart(tables: dict[str, dict[str, Any]], lists: set[str]) -> bool:
    """Is no table below a value, or below a list of tables, whose last one it would belong to?"""
    values = {f"{table}.{key}".removeprefix(".") for table, keys in tables.items() for key in keys}
    for table in (*tables, *lists):
        parts = table.partition("#")[0].split(".")
        above = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        if not values.isdisjoint(above) or not lists.isdisjoint(above[:-1]):
            return False
    return lists.isdisjoint(tables)


def _must_be_comment(rest: str) -> None:
    rest = rest.strip(" \t")
    if rest and not (rest[0] == "#" and rest.replace("\t", "").isprintable()):
        raise _NotPlain


def _header(text: str) -> tuple[str, bool, str]:
    """(name, whether it is of a list, what follows) of `[name]` and `[[name]]`."""
    of_list = text.startswith("[[")
    name, closed, after = text[1 + of_list :].partition("]]" if of_list else "]")
    if not closed or not all(part and _KEY.issuperset(part) for part in name.split(".")):
        raise _NotPlain
    return name, of_list, after


def _pair(text: str) -> tuple[str, Any, str]:
    key, equals, rest = text.partition("=")
    key = key.rstrip(" \t")
    if not (key and equals and _KEY.issuperset(key)):
        raise _NotPlain
    value, after = _value(rest.lstrip(" \t"))
    return key, value, after


def _value(text: str) -> tuple[Any, str]:
    """The value that comes first, and what follows it."""
    if text.startswith("["):
        return _list(text[1:].lstrip(" \t"))
    if text.startswith('"'):
        value, closed, after = text[1:].partition('"')
        if not closed or "\\" in value or not value.isprintable() or (not value and after.startswith('"')):
            raise _NotPlain
        return value, after
    end = min((at for at in map(text.find, ",]# \t") if at >= 0), default=len(text))
    word = text[:end]
    return (_WORDS[word] if word in _WORDS else _number(word)), text[end:]


def _list(text: str) -> tuple[list[Any], str]:
    """What follows the opening bracket."""
    values: list[Any] = []
    while not text.startswith("]"):
        value, text = _value(text)
        values.append(value)
        text = text.lstrip(" \t")
        if not text.startswith("]"):
            if not text.startswith(","):
                raise _NotPlain
            text = text[1:].lstrip(" \t")
    return values, text[1:]


def _number(word: str) -> int | float:
    """In decimal digits, which `_` may stand between."""
    mantissa, exponential, exponent = word.removeprefix("-").partition("e")
    whole, point, fraction = mantissa.partition(".")
    parts = [whole, *([fraction] if point else ()), *([exponent.removeprefix("-")] if exponential else ())]
    for digits in parts:
        if not (digits.isascii() and digits.replace("_", "").isdecimal()):
            raise _NotPlain
        if digits.startswith("_") or digits.endswith("_") or "__" in digits:
            raise _NotPlain
    if len(whole) > 1 and whole[0] == "0":
        raise _NotPlain
    return float(word) if point or exponential else int(word)
