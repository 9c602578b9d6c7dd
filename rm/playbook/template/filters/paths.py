"""Tests of paths (`x is file`): they look at the control machine, by way of a lookup."""

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
    "same_file": ("same_file", "is_same_file"),
}  # fmt: skip


def _looking(kind: str) -> Callable[..., Any]:
    @pass_context
    def test(context: Context, path: Any, *other: Any) -> bool:
        refuse_undefined([path, *other])
        scope = context.parent["__scope__"]
        if scope.seek is None:
            raise ValueError(f"the test '{kind}' is not possible here")
        (found,) = scope.seek(LOOK, [kind, str(path), *map(str, other)], {}, scope)
        return bool(found)

    return test


PATH_TESTS: dict[str, Callable[..., Any]] = {
    name: _looking(kind) for kind, names in KINDS.items() for name in names
}
