"""YAML that can neither unfold nor nest without end.

A few hundred bytes of aliases may stand for billions of values, and some thousand brackets end the process in
PyYAML's own C code. So a text's events are counted, which takes little and builds nothing, before its nodes
are made. No objects are built from tags, as by `yaml.SafeLoader`.
"""

from __future__ import annotations

from typing import Any

import yaml

COPIES_MAX = 250_000  # values that aliases may add to those that are written
DEPTH_MAX = 100
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BoundedLoader(_SAFE):  # type: ignore[misc]
    """Raises a MarkedYAMLError for a text whose aliases unfold too far or into themselves, or that is nested
    too deeply."""

    def __init__(self, text: str | bytes) -> None:
        _count(text)
        super().__init__(text)


def _told(kind: str) -> Any:
    """PyYAML's constructor of such values, with a sentence for a text that has the form of one and is none:
    the 31st of February, a number of 5,000 digits."""
    make = _SAFE.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def made(loader: Any, node: Any) -> Any:
        try:
            return make(loader, node)
        except (ValueError, OverflowError, LookupError, AttributeError):  # the last two: a tag says the kind
            problem = f"'{node.value:.40}' is no {kind} that can be: quote it if it is text"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark) from None

    return made


for _kind in ("bool", "int", "float", "timestamp"):
    BoundedLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _told(_kind))


def load_plain(text: str | bytes) -> Any:
    """One document's plain values. Raises yaml.YAMLError."""
    return yaml.load(text, BoundedLoader)


def load_all_plain(text: str | bytes) -> list[Any]:
    """Every document's plain values. Raises yaml.YAMLError."""
    return list(yaml.load_all(text, BoundedLoader))


def _count(text: str | bytes) -> None:
    copies = 0
    sizes: dict[str, int] = {}  # anchor -> how many values it stands for
    levels: list[list[Any]] = [[0, None]]  # values so far, and the anchor, of each list or mapping around
    event: Any
    for event in yaml.parse(text, Loader=_SAFE):
        kind = type(event)
        if kind is yaml.ScalarEvent:
            levels[-1][0] += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
            levels.append([1, event.anchor])
            if len(levels) > DEPTH_MAX + 1:
                raise _problem(f"there are more than {DEPTH_MAX} levels of lists and mappings", event)
        elif kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
            size, anchor = levels.pop()
            levels[-1][0] += size
            if anchor is not None:
                sizes[anchor] = size
        elif kind is yaml.AliasEvent:
            if any(event.anchor == anchor for _, anchor in levels):
                raise _problem("an alias stands for what it is in", event)
            size = sizes.get(event.anchor, 0)  # one without an anchor is reported later
            levels[-1][0] += size
            copies += size
            if copies > COPIES_MAX:
                raise _problem(f"the aliases stand for more than {COPIES_MAX} values", event)
        elif kind is yaml.DocumentStartEvent:
            sizes, copies = {}, 0


def _problem(said: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=said, problem_mark=event.start_mark)
