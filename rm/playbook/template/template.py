"""Jinja2 as playbooks use it: sandboxed, strict about undefined names, lazily nested variables.

A scope is a stack of layers. A name whose value is not known yet (the result of a step that has
not run) raises `NeedResult`: the evaluator then sends what it has compiled so far and goes on
after the answers. Values that came from hosts are never templated themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import Undefined, UndefinedError, nodes
from jinja2.utils import missing

from rm.playbook.model.located import Encrypted, Unsafe
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.template.jinja import (
    ENVIRONMENT,
    Absent,
    NeedResult,
    UndefinedName,
    backslashes,
    bare,
    check,
    has_template,
    inlined,
    is_template,
    short,
)  # fmt: skip
from rm.playbook.template.native import OMIT, left_out, listed, lists
from rm.playbook.template.syntax import HEADER, syntax_of

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
        last: Mapping[str, Any] | None = None,
    ) -> None:
        self.layers = layers
        self.last = last or {}  # what holds where no layer has the name
        self.pending = pending
        self.seek = seek  # carries out `lookup(…)`
        self._known: dict[str, Any] = {}
        self._open: list[str] = []

    def above(self, *layers: Layer) -> Scope:
        return Scope([*layers, *self.layers], self.pending, self.seek, self.last)

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
        return _All(self) if name == "vars" else self.last.get(name, missing)


class _All(Mapping[str, Any]):
    """`vars`: all variables by their names."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getitem__(self, name: str) -> Any:
        value = self._scope.lookup(name)
        if value is missing:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for layer in self._scope.layers for name in layer.values))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return "all variables"


PENDING = object()
# (lookup's name, its terms, its options, the scope) -> a list of values
Seek = Callable[[str, list[Any], dict[str, Any], Scope], list[Any]]


_compiled: dict[tuple[str, str], Callable[[Scope], Any]] = {}  # a cache of pure functions


def forget_compiled() -> None:
    _compiled.clear()


def evaluate(value: Any, scope: Scope, ranges: bool = False) -> Any:
    """Evaluate templates in a value, deeply. `{{ x }}` alone keeps x's type; else text. A range is an error,
    unless `ranges`: then it is a list."""
    if isinstance(value, str):
        if isinstance(value, Encrypted):
            raise TemplateProblem("the value is encrypted; give --vault-password-file")
        if isinstance(value, Unsafe) or not is_template(value):
            return value
        found = _run("value", value, scope)
        found = _without_ranges(found) if ranges else found
        return _without_omitted(found) if _used(found) else found
    if isinstance(value, dict):
        pairs = ((key, evaluate(inner, scope, ranges)) for key, inner in value.items())
        return {key: found for key, found in pairs if found is not OMIT}
    if isinstance(value, list):
        items = (evaluate(item, scope, ranges) for item in value)
        return [found for found in items if found is not OMIT]
    return value


def _without_ranges(value: Any) -> Any:
    if isinstance(value, range):
        return list(value)
    return [_without_ranges(inner) for inner in value] if isinstance(value, list) else value


def _without_omitted(value: Any) -> Any:
    """A mapping or list without what is `omit`, at any depth."""
    if isinstance(value, dict):
        return {key: _without_omitted(inner) for key, inner in value.items() if inner is not OMIT}
    if isinstance(value, (list, tuple)):
        return [_without_omitted(inner) for inner in value if inner is not OMIT]
    return value


def _used(value: Any) -> bool:
    """What a template gives must not hold anything undefined, nor as in Ansible a range. Returns whether
    something in it is `omit`."""
    if isinstance(value, range):
        raise TemplateProblem("a value is a range, which is no list; write '| list' behind it")
    if isinstance(value, Undefined):
        try:
            value._fail_with_undefined_error()
        except UndefinedError as problem:
            raise UndefinedName(problem.message or "a value is undefined") from None
    inside: Iterable[Any] = ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, (list, tuple)):
        inside = value
    omitted = False
    for inner in inside:
        omitted = inner is OMIT or _used(inner) or omitted
    return omitted


def _lenient(value: Any, scope: Scope) -> Any:
    """A variable's value: an undefined part deep inside matters only where that part is used."""
    if isinstance(value, dict):
        return {key: _leaf(inner, scope) for key, inner in value.items()}
    if isinstance(value, list):
        return [_leaf(item, scope) for item in value]
    if isinstance(value, str):
        if isinstance(value, (Encrypted, Unsafe)) or not is_template(value):
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
    if isinstance(source, Unsafe):
        raise TemplateProblem("the condition is a text that must not be evaluated (`!unsafe`, or an answer)")
    value = source
    if isinstance(source, str):
        value = _run("expression", inlined(bare(source)), scope, bare(source))
    if not isinstance(value, bool):
        kind = "str" if isinstance(value, str) else type(value).__name__
        raise TemplateProblem(
            f"the condition '{short(str(source))}' gave {value!r} ({kind}), not true or false; "
            "compare it, or use '| bool'"
        )
    return value


def render(source: str, scope: Scope) -> Any:
    """What a template file gives: a text with as many newlines at its end as it has itself, or the value of
    the one expression that it is."""
    return as_long(_run("text", source, scope), source)


def as_long(text: Any, source: str) -> Any:
    """A text with no fewer newlines at its end than its template has; another value as it is."""
    if not isinstance(text, str):
        return text
    ends = len(source) - len(source.rstrip("\n"))
    return text + "\n" * max(0, ends - (len(text) - len(text.rstrip("\n"))))


def _run(kind: str, source: str, scope: Scope, written: str = "") -> Any:
    def run() -> Any:
        function = _compiled.get((kind, source))
        if function is None:
            function = _compiled[kind, source] = _compile(kind, source)
        return function(scope)

    return guarded(written or source, run)


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
    if kind == "expression":
        return _expression(_compiled_expression(source))
    if kind == "text":
        template = ENVIRONMENT.from_string(source)
        return lambda scope: defined(template.render(__scope__=scope))
    if source.startswith(HEADER):
        text, syntax = syntax_of(source)
        template = ENVIRONMENT.overlay(**syntax).from_string(text)
        return _with_end(source, lambda scope: defined(template.render(__scope__=scope)))
    read = backslashes(source)  # without the newline at its end
    body = ENVIRONMENT.parse(read).body
    only = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
    single = re.fullmatch(r"\s*\{\{-?(.*?)-?\}\}\s*", read, re.DOTALL)
    if single and len(only) == 1 and not isinstance(only[0], nodes.TemplateData):
        return _with_end(source, _expression(_compiled_expression(single[1])))
    template = ENVIRONMENT.from_string(read)
    return _with_end(source, lambda scope: defined(template.render(__scope__=scope)))


def _with_end(source: str, function: Callable[[Scope], Any]) -> Callable[[Scope], Any]:
    """A text that a value gives ends with as many newlines as the value is written with."""
    return (lambda scope: as_long(function(scope), source)) if source.endswith("\n") else function


def _compiled_expression(source: str) -> Callable[..., Any]:
    return ENVIRONMENT.compile_expression(source.strip(), undefined_to_none=False)


def _expression(compiled: Callable[..., Any]) -> Callable[[Scope], Any]:
    return lambda scope: defined(compiled(__scope__=scope))


def defined(value: Any) -> Any:
    """The value; raises UndefinedError where it is none, and no text could go on without it."""
    if isinstance(value, Undefined) and not left_out(value):
        value._fail_with_undefined_error()
    return listed(value)


def as_text(value: Any) -> str:
    """What a template file gives."""
    return "" if value is None else str(lists(value))
