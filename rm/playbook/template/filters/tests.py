"""Ansible's tests (`x is …`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import UndefinedError

from rm.compiled_later import compiled_later
from rm.playbook.template.filters.versions import version


def _flag(name: str, *, negate: bool = False) -> Callable[[Any], bool]:
    def test(result: Any) -> bool:
        if not isinstance(result, Mapping):
            raise UndefinedError(f"the test '{name}' needs a registered result")
        return bool(result.get(name)) != negate

    return test


def _pattern(how: str) -> Callable[..., bool]:
    def test(
        value: Any, pattern: str = "", ignorecase: bool = False, multiline: bool = False, **_: Any
    ) -> bool:
        flags = (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0)
        return getattr(re, how)(pattern, str(value), flags) is not None

    return test


def _regex(value: Any, pattern: str = "", ignorecase: bool = False, multiline: bool = False,
           match_type: str = "search") -> bool:  # fmt: skip
    return _pattern(match_type)(value, pattern, ignorecase, multiline)


_SCHEME_AND_PLACE = compiled_later(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?")


def _address(value: Any) -> tuple[str, str] | None:
    """Scheme and place of a text, as urllib.parse finds them; None where it finds a mistake."""
    match = _SCHEME_AND_PLACE.match(value.lstrip()) if isinstance(value, str) else None
    if match is None or ("[" in (match[2] or "")) != ("]" in (match[2] or "")):
        return None
    return (match[1] or "").lower(), match[2] or ""


def _uri(value: Any, schemes: Sequence[str] | None = None) -> bool:
    """As Ansible's: a text without a scheme is one, too, unless `schemes` are wanted."""
    found = _address(value)
    return found is not None and (not schemes or found[0] in schemes)


def _url(value: Any, schemes: Sequence[str] | None = None) -> bool:
    found = _address(value)
    return found is not None and _uri(value, schemes) and (found[1] != "" or found[0] == "file")


def _timed_out(result: Any) -> bool:
    if not isinstance(result, Mapping):
        raise UndefinedError("the test 'timedout' needs a registered result")
    return bool((result.get("timedout") or {}).get("period"))


def _truthy(value: Any, convert_bool: bool = False) -> bool:
    if convert_bool and isinstance(value, str):
        return value.strip().lower() in ("yes", "on", "true", "1", "y", "t")
    return bool(value)


TESTS: dict[str, Callable[..., Any]] = {
    "changed": _flag("changed"),
    "change": _flag("changed"),
    "failed": _flag("failed"),
    "failure": _flag("failed"),
    "skipped": _flag("skipped"),
    "skip": _flag("skipped"),
    "unreachable": _flag("unreachable"),
    "reachable": _flag("unreachable", negate=True),
    "finished": lambda result: bool(result.get("finished", True)),
    "started": lambda result: bool(result.get("started", True)),
    "succeeded": _flag("failed", negate=True),
    "success": _flag("failed", negate=True),
    "successful": _flag("failed", negate=True),
    "match": _pattern("match"),
    "search": _pattern("search"),
    "regex": _regex,
    "version": version,
    "version_compare": version,
    "truthy": _truthy,
    "falsy": lambda value, convert_bool=False: not _truthy(value, convert_bool),
    "contains": lambda value, item: item in value,
    "any": lambda value: any(value),
    "all": lambda value: all(value),
    "subset": lambda value, other: set(value) <= set(other),
    "issubset": lambda value, other: set(value) <= set(other),
    "superset": lambda value, other: set(value) >= set(other),
    "issuperset": lambda value, other: set(value) >= set(other),
    "abs": lambda value: str(value).startswith("/"),
    "is_abs": lambda value: str(value).startswith("/"),
    "nan": lambda value: value != value,
    "isnan": lambda value: value != value,
    "vault_encrypted": lambda value: str(value).startswith("$ANSIBLE_VAULT;"),
    "vaulted": lambda value: str(value).startswith("$ANSIBLE_VAULT;"),
    "uri": _uri,
    "url": _url,
    "urn": lambda value: _uri(value, ("urn",)),
    "timedout": _timed_out,
}
