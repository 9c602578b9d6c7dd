"""Jinja2 as playbooks use it: sandboxed, strict about undefined names, lazily nested variables.

A scope is a stack of layers. A name whose value is not known yet (the result of a step that has
not run) raises `NeedResult`: the evaluator then sends what it has compiled so far and goes on
after the answers. Values that came from hosts are never templated themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import missing

from rm.playbook.filters import FILTERS, IMPURE_FILTERS, TESTS
from rm.playbook.located import nearest

_MARKS = ("{{", "{%", "{#")
_DEPTH_MAX = 40


class NeedResult(Exception):
    """The expression needs the result of a step that has not run yet."""


class TemplateProblem(Exception):
    """A template cannot be read or evaluated; the message is a clause without place."""


class _Omit:
    def __repr__(self) -> str:
        return "omit"


OMIT = _Omit()


class Layer:
    """Variables of one origin. `trusted` ones are written by the admin and may hold templates."""

    __slots__ = ("trusted", "values")

    def __init__(self, values: Mapping[str, Any], trusted: bool) -> None:
        self.values = values
        self.trusted = trusted


class Scope:
    """Layers, the strongest first, and the names whose values are still to come."""

    def __init__(self, layers: list[Layer], pending: Callable[[str], bool] = lambda name: False) -> None:
        self.layers = layers
        self.pending = pending
        self._known: dict[str, Any] = {}
        self._open: list[str] = []

    def above(self, *layers: Layer) -> Scope:
        return Scope([*layers, *self.layers], self.pending)

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
                    value = evaluate(value, self)
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


class _Context(Context):
    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        scope = self.parent.get("__scope__")
        value = scope.lookup(key) if scope is not None else missing
        return super().resolve_or_missing(key) if value is missing else value


class _Environment(SandboxedEnvironment):
    context_class = _Context


def _environment() -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )
    environment.filters.update(FILTERS)
    environment.tests.update(TESTS)
    for name in IMPURE_FILTERS:
        del environment.filters[name]
    environment.globals = {"range": environment.globals["range"], "dict": dict, "omit": OMIT}
    return environment


_ENVIRONMENT = _environment()
_compiled: dict[tuple[str, str], Callable[[Scope], Any]] = {}  # a cache of pure functions


def check(source: str, expression: bool = False) -> None:
    """Raises TemplateProblem when a template or expression is malformed or uses unknown filters."""
    try:
        tree = _ENVIRONMENT.parse("{{ " + source + " }}" if expression else source)
    except TemplateError as problem:
        raise TemplateProblem(f"'{_short(source)}' is not a Jinja2 template: {problem.message}") from None
    for kind, known in ((nodes.Filter, _ENVIRONMENT.filters), (nodes.Test, _ENVIRONMENT.tests)):
        for node in tree.find_all(kind):
            name = node.name
            if name not in known:
                word = kind.__name__.lower()
                near = nearest(name.removeprefix("ansible.builtin."), known)
                raise TemplateProblem(f"unknown {word} '{name}'. {near if 'mean' in near else ''}".strip())


def has_template(value: Any) -> bool:
    """Does the value hold a template anywhere?"""
    if isinstance(value, str):
        return any(mark in value for mark in _MARKS)
    if isinstance(value, dict):
        return any(has_template(x) for pair in value.items() for x in pair)
    return isinstance(value, list) and any(map(has_template, value))


def evaluate(value: Any, scope: Scope) -> Any:
    """Evaluate templates in a value, deeply. `{{ x }}` alone keeps x's type; else text."""
    if isinstance(value, str):
        if not any(mark in value for mark in _MARKS):
            return value
        return _run("value", value, scope)
    if isinstance(value, dict):
        return {evaluate(k, scope): evaluate(v, scope) for k, v in value.items()}
    if isinstance(value, list):
        return [evaluate(item, scope) for item in value]
    return value


def expression(source: str, scope: Scope) -> Any:
    """The value of a bare expression (`when`, `until`, `changed_when`, …)."""
    return _run("expression", source, scope)


def condition(source: Any, scope: Scope) -> bool:
    """A condition must be a boolean: the text "no" is true in Jinja2, which nobody means."""
    value = expression(source, scope) if isinstance(source, str) else source
    if not isinstance(value, bool):
        kind = type(value).__name__
        raise TemplateProblem(
            f"the condition '{_short(str(source))}' gave {value!r} ({kind}), not true or false; "
            "compare it, or use '| bool'"
        )
    return value


def render(source: str, scope: Scope) -> str:
    """A template file to text."""
    return str(_run("text", source, scope))


def _run(kind: str, source: str, scope: Scope) -> Any:
    try:
        function = _compiled.get((kind, source))
        if function is None:
            function = _compiled[kind, source] = _compile(kind, source)
        return function(scope)
    except (NeedResult, TemplateProblem):
        raise
    except Exception as problem:  # a filter may raise anything on odd input: it is the template's fault
        said = str(problem) or type(problem).__name__
        raise TemplateProblem(f"'{_short(source)}': {said.splitlines()[0]}") from None


def _compile(kind: str, source: str) -> Callable[[Scope], Any]:
    if kind == "value":
        body = _ENVIRONMENT.parse(source).body
        only = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
        single = re.fullmatch(r"\s*\{\{-?(.*?)-?\}\}\s*", source, re.DOTALL)
        if single and len(only) == 1 and not isinstance(only[0], nodes.TemplateData):
            return _compile("expression", single[1])
    if kind == "expression":
        compiled = _ENVIRONMENT.compile_expression(source.strip(), undefined_to_none=False)

        def function(scope: Scope) -> Any:
            value = compiled(__scope__=scope)
            if isinstance(value, Undefined):
                value._fail_with_undefined_error()
            return list(value) if isinstance(value, Iterator) else value

        return function
    template = _ENVIRONMENT.from_string(source)
    return lambda scope: template.render(__scope__=scope)


def _short(source: str) -> str:
    flat = " ".join(source.split())
    return flat if len(flat) <= 80 else flat[:77] + "..."
