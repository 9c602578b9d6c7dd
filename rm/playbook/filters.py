"""Ansible's filters and tests that Jinja2 itself lacks; all pure functions of their input."""

from __future__ import annotations

import base64
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml
from jinja2 import StrictUndefined, Undefined, UndefinedError

TRUE = ("yes", "on", "true", "1", "y", "t")


def to_bool(value: Any) -> bool | None:
    """Ansible's `bool`: yes/on/true/1 in any case are true, everything else false."""
    if value is None or isinstance(value, bool):
        return value
    return str(value).strip().lower() in TRUE if isinstance(value, str) else value == 1


def _nice_json(value: Any, indent: int = 4, sort_keys: bool = True) -> str:
    return json.dumps(value, indent=indent, sort_keys=sort_keys, default=str, separators=(",", ": "))


def _yaml(value: Any, indent: int = 2, sort_keys: bool = True, **_: Any) -> str:
    plain = json.loads(json.dumps(value, default=str))
    return str(yaml.safe_dump(plain, indent=indent, sort_keys=sort_keys, default_flow_style=None))


def _nice_yaml(value: Any, indent: int = 4, sort_keys: bool = True, **_: Any) -> str:
    plain = json.loads(json.dumps(value, default=str))
    return str(yaml.safe_dump(plain, indent=indent, sort_keys=sort_keys, default_flow_style=False))


def _regex_replace(value: Any, pattern: str = "", replacement: str = "", ignorecase: bool = False) -> str:
    return re.sub(pattern, replacement, str(value), flags=re.IGNORECASE if ignorecase else 0)


def _regex_search(value: Any, pattern: str, *groups: str, ignorecase: bool = False) -> Any:
    match = re.search(pattern, str(value), re.IGNORECASE if ignorecase else 0)
    if match is None:
        return None
    if not groups:
        return match.group()
    return [match.group(int(g[1:]) if g[1:].isdigit() else g[3:-1]) for g in groups]


def _combine(first: Mapping[str, Any], *others: Mapping[str, Any], recursive: bool = False) -> dict[str, Any]:
    merged = dict(first)
    for other in others:
        for key, value in other.items():
            if recursive and isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                merged[key] = _combine(merged[key], value, recursive=True)
            else:
                merged[key] = value
    return merged


def _ternary(value: Any, if_true: Any, if_false: Any, if_none: Any = None) -> Any:
    return if_none if value is None and if_none is not None else if_true if value else if_false


def _mandatory(value: Any, msg: str = "") -> Any:
    if isinstance(value, Undefined):
        raise UndefinedError(msg or "a mandatory variable is undefined")
    return value


def _items2dict(value: Iterable[Any], key_name: str = "key", value_name: str = "value") -> dict[Any, Any]:
    return {item[key_name]: item[value_name] for item in value}


def _unique(*lists: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for item in (item for one in lists for item in one):
        if item not in found:
            found.append(item)
    return found


def _version_key(text: str) -> list[tuple[int, int, str]]:
    words = re.findall(r"\d+|[a-z]+", text.lower())
    return [(1, int(w), "") if w.isdigit() else (0, 0, w) for w in words]


def _version(value: Any, other: Any, operator: str = "==") -> bool:
    one, two = _version_key(str(value)), _version_key(str(other))
    length = max(len(one), len(two))
    one, two = one + [(1, 0, "")] * (length - len(one)), two + [(1, 0, "")] * (length - len(two))
    names = {"eq": "==", "=": "==", "ne": "!=", "<>": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    results = {
        "==": one == two, "!=": one != two, "<": one < two,
        "<=": one <= two, ">": one > two, ">=": one >= two,
    }  # fmt: skip
    return results[names.get(operator, operator)]


def _flag(name: str) -> Callable[[Any], bool]:
    def test(result: Any) -> bool:
        if not isinstance(result, Mapping):
            raise UndefinedError(f"the test '{name}' needs a registered result")
        return bool(result.get(name))

    return test


FILTERS: dict[str, Callable[..., Any]] = {
    "bool": to_bool,
    "to_json": lambda value, **k: json.dumps(value, default=str, sort_keys=bool(k.get("sort_keys"))),
    "to_nice_json": _nice_json,
    "from_json": lambda value: json.loads(value),
    "to_yaml": _yaml,
    "to_nice_yaml": _nice_yaml,
    "from_yaml": lambda value: yaml.safe_load(value),
    "regex_replace": _regex_replace,
    "regex_search": _regex_search,
    "regex_findall": lambda value, pattern: re.findall(pattern, str(value)),
    "regex_escape": lambda value: re.escape(str(value)),
    "combine": _combine,
    "ternary": _ternary,
    "basename": lambda value: posixpath.basename(str(value)),
    "dirname": lambda value: posixpath.dirname(str(value)),
    "splitext": lambda value: list(posixpath.splitext(str(value))),
    "b64encode": lambda value: base64.b64encode(str(value).encode()).decode(),
    "b64decode": lambda value: base64.b64decode(value).decode(),
    "quote": lambda value: shlex.quote(str(value)),
    "mandatory": _mandatory,
    "dict2items": lambda value, key_name="key", value_name="value": [
        {key_name: k, value_name: v} for k, v in value.items()
    ],
    "items2dict": _items2dict,
    "split": lambda value, *by: str(value).split(*by),
    "flatten": lambda value: [x for item in value for x in (item if isinstance(item, list) else [item])],
    "union": _unique,
    "difference": lambda a, b: [x for x in _unique(a) if x not in b],
    "intersect": lambda a, b: [x for x in _unique(a) if x in b],
}
TESTS: dict[str, Callable[..., Any]] = {
    "changed": _flag("changed"),
    "failed": _flag("failed"),
    "skipped": _flag("skipped"),
    "succeeded": lambda result: not _flag("failed")(result),
    "success": lambda result: not _flag("failed")(result),
    "match": lambda value, pattern: re.match(pattern, str(value)) is not None,
    "search": lambda value, pattern: re.search(pattern, str(value)) is not None,
    "regex": lambda value, pattern: re.search(pattern, str(value)) is not None,
    "version": _version,
    "truthy": lambda value: bool(value),
    "falsy": lambda value: not value,
    "contains": lambda value, item: item in value,
    "subset": lambda value, other: set(value) <= set(other),
    "superset": lambda value, other: set(value) >= set(other),
}
# Jinja2's own that are not functions of their input alone
IMPURE_FILTERS = ("random",)
__all__ = ["FILTERS", "IMPURE_FILTERS", "TESTS", "StrictUndefined", "to_bool"]
