"""YAML text to plain values that remember their lines, so that every complaint can name one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from rm.errors import RmError, UsageError
from rm.playbook.model.bounded_yaml import BoundedLoader


class Map(dict[str, Any]):
    """A mapping; `line` is where it starts, `lines[key]` where each key stands (from 1)."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.line = 0
        self.lines: dict[str, int] = {}

    def line_of(self, key: str) -> int:
        return self.lines.get(key, self.line)


class Seq(list[Any]):
    """A sequence; `lines[i]` is where item i starts."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.line = 0
        self.lines = [0] * len(self)


class _Loader(BoundedLoader):
    """A loader that keeps lines and refuses doubled keys."""


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _map(loader: Any, node: yaml.MappingNode) -> Map:
    written = [k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)]
    doubled = next((k for k in written if k != "<<" and written.count(k) > 1), None)
    if doubled is not None:
        raise yaml.constructor.ConstructorError(
            problem=f"the key '{doubled}' appears twice in one mapping", problem_mark=node.start_mark
        )
    loader.flatten_mapping(node)
    found = Map()
    found.line, found.lines = _line(node), {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, (dict, list)):
            raise yaml.constructor.ConstructorError(
                problem="a mapping's key must be a plain word", problem_mark=key_node.start_mark
            )
        found[key] = loader.construct_object(value_node, deep=True)
        found.lines[key] = _line(key_node)
    return found


def _seq(loader: Any, node: yaml.SequenceNode) -> Seq:
    found = Seq(loader.construct_object(child, deep=True) for child in node.value)
    found.line, found.lines = _line(node), [_line(child) for child in node.value]
    return found


class Unsafe(str):
    """Text that is never a template (`!unsafe`)."""


def untemplated(value: Any) -> Any:
    """The value with every text in it as one that is never a template."""
    if isinstance(value, Mapping):
        return {key: untemplated(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [untemplated(inner) for inner in value]
    return Unsafe(value) if type(value) is str else value


VAULTED = "$ANSIBLE_VAULT;"  # so begins what ansible-vault has encrypted


class Encrypted(str):
    """An `!vault` value for which no password was given."""


def _vault(loader: Any, node: yaml.ScalarNode) -> str:
    text = str(node.value)
    if loader.decrypt is None:
        return Encrypted(text)
    try:
        return str(loader.decrypt(text))
    except RmError as problem:
        raise yaml.constructor.ConstructorError(
            problem=problem.what.rstrip("."), problem_mark=node.start_mark
        ) from None


def _unsafe(loader: Any, node: yaml.Node) -> Any:
    def deep(value: Any) -> Any:
        if isinstance(value, str):
            return Unsafe(value)
        if isinstance(value, dict):
            return {k: deep(v) for k, v in value.items()}
        return [deep(v) for v in value] if isinstance(value, list) else value

    if isinstance(node, yaml.MappingNode):
        return deep(_map(loader, node))
    return deep(_seq(loader, node)) if isinstance(node, yaml.SequenceNode) else Unsafe(str(node.value))


_Loader.add_constructor("!vault", _vault)
_Loader.add_constructor("!vault-encrypted", _vault)
_Loader.add_constructor("!unsafe", _unsafe)
_Loader.add_constructor("tag:yaml.org,2002:map", _map)
_Loader.add_constructor("tag:yaml.org,2002:seq", _seq)


def load(
    text: str, filename: str, error: type[RmError] = UsageError, decrypt: Callable[[str], str] | None = None
) -> Any:
    """Parse one YAML document; raises `error` with file and line. `decrypt` opens `!vault` values."""
    try:
        loader = _Loader(text)
        loader.decrypt = decrypt
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = mark.line + 1 if mark else 1
        said = (problem.problem or "not YAML").replace("\n", " ")
        hint = "Quote values that start with {{ and check the indentation." if "{{" in text else ""
        raise error(f"{filename}:{line}: {said}.", hint or "Check the indentation.") from None
    except yaml.YAMLError as problem:
        raise error(f"{filename}: {str(problem).splitlines()[0]}.", "The file must be UTF-8 YAML.") from None
