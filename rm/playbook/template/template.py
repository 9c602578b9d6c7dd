"""Jinja2 as playbooks use it: sandboxed, strict about undefined names, lazily nested variables.

A scope is a stack of layers. A name whose value is not known yet (the result of a step that has
not run) raises `NeedResult`: the evaluator then sends what it has compiled so far and goes on
after the answers. Values that came from hosts are never templated themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import Undefined, UndefinedError, nodes
from jinja2.utils import missing

from rm.playbook.model.located import Encrypted, Unsafe
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.template.jinja import (
    ENVIRONMENT,
    MARKS,
    OMIT,
    Absent,
    NeedResult,
    UndefinedName,
    backslashes,
    bare,
    check,
    has_template,
    short,
)  # fmt: skip

__all__ = [
    "OMIT", "PENDING", "Layer", "NeedResult", "Scope", "Seek", "UndefinedName", "bare",
    "check", "condition", "evaluate", "expression", "has_template", "render",
]  # fmt: skip
_DEPTH_MAX = 40


class Layer:
    """Variables of one origin. `trusted` ones are written by the admin and may hold templates."""

    __slots__ = ("trusted", "values")

    def __init__(self, values: Mapping[str, Any], trusted: bool) -> None:
        self.values = values
        self.trusted = trusted


class Scope:
    """Layers, the strongest first, and the names whose values are still to come."""

    def __init__(
        self,
        layers: list[Layer],
        pending: Callable[[str], bool] = lambda name: False,
        seek: Seek | None = None,
    ) -> None:
        self.layers = layers
        self.pending = pending
        self.seek = seek  # carries out `lookup(…)`
        self._known: dict[str, Any] = {}
        self._open: list[str] = []

    def above(self, *layers: Layer) -> Scope:
        return Scope([*layers, *self.layers], self.pending, self.seek)

    def lookup(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        for layer in self.layers:
            if name not in layer.values:
                continue
            value = layer.values[name]
            if layer.trusted:
                if name in self._open or len(self._open) > _DEPTH_MAX:
                    raise TemplateProblem(f"the variables {' > '.join([*self._open, name])} form a loop")
                self._open.append(name)
                try:
                    value = _leaf(value, self)
                finally:
                    self._open.pop()
            elif value is PENDING:
                raise NeedResult(name)
            self._known[name] = value
            return value
        if self.pending(name):
            raise NeedResult(name)
        return missing


PENDING = object()
# (lookup's name, its terms, its options, the scope) -> a list of values
Seek = Callable[[str, list[Any], dict[str, Any], Scope], list[Any]]


_compiled: dict[tuple[str, str], Callable[[Scope], Any]] = {}  # a cache of pure functions


def forget_compiled() -> None:
    _compiled.clear()


def evaluate(value: Any, scope: Scope) -> Any:
    """Evaluate templates in a value, deeply. `{{ x }}` alone keeps x's type; else text."""
    if isinstance(value, str):
        if isinstance(value, Encrypted):
            raise TemplateProblem("the value is encrypted; give --vault-password-file")
        if isinstance(value, Unsafe) or not any(mark in value for mark in MARKS):
            return value
        found = _run("value", value, scope)
        _used(found)
        return found
    if isinstance(value, dict):
        return {evaluate(k, scope): evaluate(v, scope) for k, v in value.items()}
    if isinstance(value, list):
        return [evaluate(item, scope) for item in value]
    return value


def _used(value: Any) -> None:
    """What a template gives must not hold anything undefined."""
    if isinstance(value, Absent):
        try:
            value._fail_with_undefined_error()
        except UndefinedError as problem:
            raise UndefinedName(problem.message or "a value is undefined") from None
    elif isinstance(value, dict):
        for inner in value.values():
            _used(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _used(inner)


def _lenient(value: Any, scope: Scope) -> Any:
    """A variable's value: an undefined part deep inside matters only where that part is used."""
    if isinstance(value, dict):
        return {evaluate(k, scope): _leaf(v, scope) for k, v in value.items()}
    if isinstance(value, list):
        return [_leaf(item, scope) for item in value]
    if isinstance(value, str):
        if isinstance(value, (Encrypted, Unsafe)) or not any(mark in value for mark in MARKS):
            return evaluate(value, scope)
        return _run("value", value, scope)
    return value


def _leaf(value: Any, scope: Scope) -> Any:
    try:
        return _lenient(value, scope)
    except (UndefinedName, TemplateProblem) as problem:
        return Absent(hint=str(problem))


def expression(source: str, scope: Scope) -> Any:
    """The value of a bare expression (`when`, `until`, `changed_when`, …)."""
    return _run("expression", source, scope)


def condition(source: Any, scope: Scope) -> bool:
    """A condition must be a boolean: the text "no" is true in Jinja2, which nobody means."""
    value = expression(bare(source), scope) if isinstance(source, str) else source
    if not isinstance(value, bool):
        kind = type(value).__name__
        raise TemplateProblem(
            f"the condition '{short(str(source))}' gave {value!r} ({kind}), not true or false; "
            "compare it, or use '| bool'"
        )
    return value


def render(source: str, scope: Scope) -> str:
    """A template to text, with as many newlines at its end as it has itself."""
    return as_long(str(_run("text", source, scope)), source)


def as_long(text: str, source: str) -> str:
    """The text with no fewer newlines at its end than its template has."""
    ends = len(source) - len(source.rstrip("\n"))
    return text + "\n" * max(0, ends - (len(text) - len(text.rstrip("\n"))))


def _run(kind: str, source: str, scope: Scope) -> Any:
    def run() -> Any:
        function = _compiled.get((kind, source))
        if function is None:
            function = _compiled[kind, source] = _compile(kind, source)
        return function(scope)

    return guarded(source, run)


def guarded(source: str, run: Callable[[], Any]) -> Any:
    """What `run` makes of a template; all that goes wrong is a TemplateProblem (or NeedResult)."""
    try:
        return run()
    except (NeedResult, TemplateProblem):
        raise
    except UndefinedError as problem:
        said = problem.message or "a value is undefined"
        raise UndefinedName(f"'{short(source)}': {said}") from None
    except Exception as problem:  # a filter may raise anything on odd input: it is the template's fault
        said = str(problem) or type(problem).__name__
        raise TemplateProblem(f"'{short(source)}': {said.splitlines()[0]}") from None


def _compile(kind: str, source: str) -> Callable[[Scope], Any]:
    if kind == "value":
        source = backslashes(source)
        body = ENVIRONMENT.parse(source).body
        only = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
        single = re.fullmatch(r"\s*\{\{-?(.*?)-?\}\}\s*", source, re.DOTALL)
        if single and len(only) == 1 and not isinstance(only[0], nodes.TemplateData):
            return _compile("expression", single[1])
    if kind == "expression":
        compiled = ENVIRONMENT.compile_expression(source.strip(), undefined_to_none=False)

        def function(scope: Scope) -> Any:
            value = compiled(__scope__=scope)
            if isinstance(value, Undefined):
                value._fail_with_undefined_error()
            return list(value) if isinstance(value, Iterator) else value

        return function
    template = ENVIRONMENT.from_string(source)
    return lambda scope: template.render(__scope__=scope)
