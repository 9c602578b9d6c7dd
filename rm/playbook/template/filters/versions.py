"""Ansible's test `version`: which of two version numbers is the newer, by one of several rules."""

from __future__ import annotations

import operator as compare
import re
from collections.abc import Callable
from typing import Any

from jinja2 import UndefinedError

from rm.compiled_later import compiled_later

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": compare.eq, "=": compare.eq, "eq": compare.eq, "!=": compare.ne, "<>": compare.ne, "ne": compare.ne,
    "<": compare.lt, "lt": compare.lt, "<=": compare.le, "le": compare.le,
    ">": compare.gt, "gt": compare.gt, ">=": compare.ge, "ge": compare.ge,
}  # fmt: skip
_STRICT = compiled_later(r"(\d+)\.(\d+)(?:\.(\d+))?(?:([ab])(\d+))?\Z", re.ASCII)
_SEMANTIC = compiled_later(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\Z",
    re.ASCII,
)


def version(
    value: Any, other: Any, operator: str = "eq", strict: Any = None, version_type: Any = None
) -> bool:
    if strict is not None and version_type is not None:
        raise ValueError("give either 'strict' or 'version_type'")
    if isinstance(value, bool) or not value or not other:
        raise UndefinedError("the test 'version' needs two version numbers")
    if operator not in _OPERATORS:
        raise ValueError(f"'{operator}' is no operator: known are {', '.join(_OPERATORS)}")
    kind = "strict" if strict else version_type or "loose"
    if kind not in _KEYS:
        raise ValueError(f"the version_type '{kind}' is not known: {', '.join(_KEYS)} are")
    key = _KEYS[kind]
    try:
        return _OPERATORS[operator](key(str(value)), key(str(other)))
    except TypeError:
        raise ValueError(f"'{value}' and '{other}' cannot be compared: a number meets a word") from None


def _loose(text: str) -> Any:
    """Numbers and words in their order: `1.2` is older than `1.2.0`; a number and a word do not compare."""
    words = (word for word in re.split(r"(\d+|[a-z]+|\.)", text) if word and word != ".")
    return [int(word) if word.isdecimal() else word for word in words]


def _strict(text: str) -> Any:
    match = _STRICT.match(text)
    if match is None:
        raise ValueError(f"'{text}' is not a version such as 1.2, 1.2.3 or 1.2b1")
    numbers = tuple(int(part or 0) for part in match.group(1, 2, 3))
    return numbers, (match[4], int(match[5])) if match[4] else ("z", 0)


def _semantic(text: str) -> Any:
    match = _SEMANTIC.match(text)
    if match is None:
        raise ValueError(f"'{text}' is not a semantic version such as 1.2.3 or 1.2.3-rc.1")
    numbers = tuple(int(part) for part in match.group(1, 2, 3))
    if match[4] is None:
        return numbers, (1,)
    words = tuple((0, int(w), "") if w.isdecimal() else (1, 0, w) for w in match[4].split("."))
    return numbers, (0, words)


_KEYS: dict[str, Callable[[str], Any]] = {
    "loose": _loose, "strict": _strict, "semver": _semantic, "semantic": _semantic,
}  # fmt: skip
