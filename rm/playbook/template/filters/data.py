"""Filters of lists, mappings and numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Undefined, UndefinedError, pass_environment

from rm.playbook.template.filters.text import refuse_undefined
from rm.playbook.template.native import left_out


def _combine(*mappings: Any, recursive: bool = False, list_merge: str = "replace") -> dict[str, Any]:
    flat: list[Mapping[str, Any]] = []
    for one in mappings:
        refuse_undefined(one)
        flat += one if isinstance(one, list) else [one]
    merged: dict[str, Any] = {}
    for one in flat:
        if not isinstance(one, Mapping):
            raise TypeError(f"combine needs mappings, not {one!r}")
        for key, value in one.items():
            old = merged.get(key)
            if recursive and isinstance(value, Mapping) and isinstance(old, Mapping):
                merged[key] = _combine(old, value, recursive=True, list_merge=list_merge)
            elif isinstance(value, list) and isinstance(old, list):
                merged[key] = _lists(old, value, list_merge)
            else:
                merged[key] = value
    return merged


def _lists(old: list[Any], new: list[Any], how: str) -> list[Any]:
    return {
        "replace": new,
        "keep": old,
        "append": old + new,
        "prepend": new + old,
        "append_rp": [x for x in old if x not in new] + new,
        "prepend_rp": new + [x for x in old if x not in new],
    }[how]


def _ternary(value: Any, if_true: Any, if_false: Any, if_none: Any = None) -> Any:
    return if_none if value is None and if_none is not None else if_true if value else if_false


def _items2dict(value: Iterable[Any], key_name: str = "key", value_name: str = "value") -> dict[Any, Any]:
    return {item[key_name]: item[value_name] for item in value}


def _dict2items(value: Any, key_name: str = "key", value_name: str = "value") -> list[dict[str, Any]]:
    refuse_undefined(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"dict2items needs a mapping, not {value!r}")
    return [{key_name: k, value_name: v} for k, v in value.items()]


def unique(*lists: Any) -> list[Any]:
    found: list[Any] = []
    for one in lists:
        refuse_undefined(one)
        for item in one:
            if item not in found:
                found.append(item)
    return found


@pass_environment
def _unique(
    environment: Any, value: Any, case_sensitive: bool | None = None, attribute: Any = None
) -> list[Any]:
    refuse_undefined(value)
    seen: list[Any] = []
    found = []
    for item in value:
        key = item
        for part in str(attribute).split(".") if attribute is not None else ():
            key = environment.getitem(key, int(part) if part.isdigit() else part)
        key = key.lower() if isinstance(key, str) and not case_sensitive else key
        if key not in seen:
            seen.append(key)
            found.append(item)
    return found


def flatten(value: Any, levels: int | None = None, skip_nulls: bool = True) -> list[Any]:
    refuse_undefined(value)
    found: list[Any] = []
    for item in value:
        if skip_nulls and item in (None, "None", "null"):
            continue
        if isinstance(item, (list, tuple)):
            if levels is None:
                found += flatten(item, None, skip_nulls)
            elif levels >= 1:
                found += flatten(item, levels - 1, skip_nulls)
            else:
                found.append(item)
        else:
            found.append(item)
    return found


def subelements(value: Any, path: Any, skip_missing: bool = False) -> list[Any]:
    items = list(value.values()) if isinstance(value, Mapping) else value
    words = path.split(".") if isinstance(path, str) else path
    found = []
    for item in items:
        inner = item
        for word in words:
            if not isinstance(inner, Mapping) or word not in inner:
                if skip_missing:
                    inner = []
                    break
                raise UndefinedError(f"an item has no '{word}'")
            inner = inner[word]
        found += [[item, one] for one in inner]
    return found


@pass_environment
def _extract(environment: Any, item: Any, container: Any, morekeys: Any = None) -> Any:
    value = environment.getitem(container, item)
    for key in [] if morekeys is None else [morekeys] if isinstance(morekeys, (str, int)) else morekeys:
        value = environment.getitem(value, key)
    return value


def _zip_longest(*lists: Any, fillvalue: Any = None) -> list[list[Any]]:
    return [list(one) for one in itertools.zip_longest(*lists, fillvalue=fillvalue)]


def _root(value: float, base: float = 2) -> float:
    return math.sqrt(value) if base == 2 else math.pow(value, 1.0 / float(base))


def _rekey(value: Any, key: str, duplicates: str = "error") -> dict[Any, Any]:
    items = value.values() if isinstance(value, Mapping) else value
    found: dict[Any, Any] = {}
    for item in items:
        if item[key] in found and duplicates == "error":
            raise ValueError(f"the key '{item[key]}' appears twice")
        found[item[key]] = item
    return found


def _default(value: Any, default: Any = "", boolean: bool = False) -> Any:
    # what `'x' if …` without `else` gives is not replaced, as in ansible-core 2.19
    if (isinstance(value, Undefined) and not left_out(value)) or (boolean and not value):
        return default
    return value


DATA: dict[str, Callable[..., Any]] = {
    "default": _default,
    "d": _default,
    "combine": _combine,
    "ternary": _ternary,
    "dict2items": _dict2items,
    "items2dict": _items2dict,
    "flatten": flatten,
    "unique": _unique,
    "union": lambda a, b: unique(a, b),
    "difference": lambda a, b: [x for x in unique(a) if x not in b],
    "intersect": lambda a, b: [x for x in unique(a) if x in b],
    "symmetric_difference": lambda a, b: [x for x in unique(a, b) if (x in a) != (x in b)],
    "subelements": subelements,
    "product": lambda a, *b, **k: [list(x) for x in itertools.product(a, *b, **k)],
    "permutations": lambda a, *n: [list(x) for x in itertools.permutations(a, *n)],
    "combinations": lambda a, n: [list(x) for x in itertools.combinations(a, n)],
    "zip": lambda *lists: [list(x) for x in zip(*lists, strict=False)],
    "zip_longest": _zip_longest,
    "extract": _extract,
    "rekey_on_member": _rekey,
    "log": lambda value, base=math.e: math.log10(value) if base == 10 else math.log(value, base),
    "pow": lambda value, power: math.pow(value, power),
    "root": _root,
}
