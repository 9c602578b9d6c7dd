"""How the parts of a template become one value: a single part keeps its type, several become text.

As in ansible-core 2.19: nothing (`none`) is no part at all, so that `{{ list }}{{ none }}`, and
`{% if … %}{{ list }}{% endif %}`, are lists.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from jinja2 import Undefined
from jinja2.environment import TemplateModule
from jinja2.nativetypes import NativeCodeGenerator

_VIEWS = (KeysView, ValuesView, ItemsView, Iterator)


class _Omit:
    def __repr__(self) -> str:
        return "omit"


OMIT = _Omit()


class CodeGenerator(NativeCodeGenerator):
    """Generates code whose constant parts keep their types, too."""

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        parts = list(group)
        return repr(parts[0]) if len(parts) == 1 else repr("".join(map(str, parts)))


def concat(nodes: Iterable[Any]) -> Any:
    """The value of a template, from its parts."""
    parts = list(_parts(nodes))
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return "".join(str(lists(part)) for part in parts if part is not OMIT and not left_out(part))


def left_out(value: Any) -> bool:
    """Is it what `'x' if …` without `else` gives? In a text that is nothing; alone it is undefined."""
    return type(value) is Undefined


def _parts(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, TemplateModule):
            yield from _parts(node._body_stream)
        elif node is not None:
            yield node


def listed(value: Any) -> Any:
    """What can be gone through only once, or is a view, as a list."""
    return list(value) if isinstance(value, _VIEWS) else value


def lists(value: Any) -> Any:
    """The value as it looks in a text: whatever is a sequence looks like a list, but for the groups of
    `groupby`. Raises UndefinedError where something in it is undefined."""
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, dict):
        return {key: lists(inner) for key, inner in value.items()}
    if hasattr(value, "grouper"):
        return tuple(map(lists, value))
    if isinstance(value, (list, tuple, *_VIEWS)) and not isinstance(value, Mapping):
        return [lists(inner) for inner in value]
    return value
