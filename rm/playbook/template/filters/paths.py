"""Tests (`x is file`) and filters of paths that look at the control machine, by way of a lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from rm.playbook.template.filters.text import refuse_undefined

LOOK = "\0path"  # the lookup, which no template can name
# the names that Ansible has for each
KINDS = {
    "file": ("file", "is_file"), "directory": ("directory", "is_dir"), "link": ("link", "is_link"),
    "exists": ("exists",), "link_exists": ("link_exists",), "mount": ("mount", "is_mount"),
    "same_file": ("same_file", "is_same_file"), "vaulted_file": ("vaulted_file",),
}  # fmt: skip


def _found(context: Context, what: str, kind: str, words: list[Any]) -> Any:
    refuse_undefined(words)
    scope = context.parent["__scope__"]
    if scope.seek is None:
        raise ValueError(f"the {what} '{kind}' is not possible here")
    (found,) = scope.seek(LOOK, [kind, *map(str, words)], {}, scope)
    return found


def _looking(kind: str) -> Callable[..., Any]:
    @pass_context
    def test(context: Context, path: Any, *other: Any) -> bool:
        return bool(_found(context, "test", kind, [path, *other]))

    return test


def _made_here(kind: str) -> Callable[..., Any]:
    @pass_context
    def function(context: Context, path: Any) -> Any:
        return _found(context, "filter", kind, [path])

    return function


PATH_TESTS: dict[str, Callable[..., Any]] = {
    name: _looking(kind) for kind, names in KINDS.items() for name in names
}
PATH_FILTERS: dict[str, Callable[..., Any]] = {
    kind: _made_here(kind) for kind in ("realpath", "expandvars", "fileglob")
}
