"""Jinja2 as playbooks use it: sandboxed, strict about undefined names, lazily nested variables.

A scope is a stack of layers. A name whose value is not known yet (the result of a step that has
not run) raises `NeedResult`: the evaluator then sends what it has compiled so far and goes on
after the answers. Values that came from hosts are never templated themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, UndefinedError, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace, missing

from rm.playbook.filters import FILTERS, IMPURE_FILTERS, LOOKUPS, TESTS
from rm.playbook.located import Encrypted, Unsafe, nearest

_MARKS = ("{{", "{%", "{#")
_DEPTH_MAX = 40


class NeedResult(Exception):
    """The expression needs the result of a step that has not run yet."""


class TemplateProblem(Exception):
    """A template cannot be read or evaluated; the message is a clause without place."""


class UndefinedName(TemplateProblem):
    """The template uses a variable that nobody defines."""


class Absent(StrictUndefined):
    """An undefined value: may be asked for what is inside it, defaulted and tested, not used."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> Absent:  # type: ignore[override]
        return self


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
        undefined=Absent,
        trim_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )
    environment.filters.update(FILTERS)
    environment.tests.update(TESTS)
    for name in IMPURE_FILTERS:
        del environment.filters[name]
    environment.globals = {
        "range": environment.globals["range"], "dict": dict, "omit": OMIT, "namespace": Namespace,
        "lookup": _lookup, "query": _query, "q": _query, "undef": _undef, "now": _now,
    }  # fmt: skip
    return environment


def _undef(hint: str = "") -> Absent:
    return Absent(hint=hint or None)


def _sought(context: Context, name: str, terms: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    scope: Scope = context.parent["__scope__"]
    if scope.seek is None:
        raise TemplateProblem(f"the lookup '{name}' is not possible here")
    return scope.seek(name.removeprefix("ansible.builtin."), list(terms), options, scope)


@pass_context
def _now(context: Context, utc: bool = False, fmt: str | None = None) -> Any:
    (moment,) = _sought(context, "now", (), {})
    moment = moment.astimezone(UTC).replace(tzinfo=None) if utc else moment.replace(tzinfo=None)
    return moment.strftime(fmt) if fmt else moment


@pass_context
def _query(context: Context, name: str, *terms: Any, **options: Any) -> list[Any]:
    return _sought(context, name, terms, options)


@pass_context
def _lookup(context: Context, name: str, *terms: Any, wantlist: bool = False, **options: Any) -> Any:
    """As Ansible's: one value as it is, several joined by commas."""
    errors = options.pop("errors", "strict")
    try:
        found = _sought(context, name, terms, options)
    except TemplateProblem:
        if errors == "strict":
            raise
        return None
    if wantlist:
        return found
    if len(found) == 1:
        return found[0]
    return ",".join(map(str, found)) if all(isinstance(one, str) for one in found) else found


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
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name not in ("lookup", "query", "q"):
            continue
        first = call.args[0] if call.args else None
        if isinstance(first, nodes.Const):
            name = str(first.value).removeprefix("ansible.builtin.")
            if name not in LOOKUPS:
                raise TemplateProblem(f"unknown lookup '{name}'. {nearest(name, LOOKUPS)}")


def bare(source: str) -> str:
    """A condition without the braces that some people put around the whole of it."""
    whole = re.fullmatch(r"\s*\{\{-?((?:(?!\{\{|\}\}).)*?)-?\}\}\s*", source, re.DOTALL)
    return whole[1].strip() if whole else source


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
        if isinstance(value, Encrypted):
            raise TemplateProblem("the value is encrypted; give --vault-password-file")
        if isinstance(value, Unsafe) or not any(mark in value for mark in _MARKS):
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
    """A variable's value: an undefined part deep inside matters only to whom uses that part."""
    if isinstance(value, dict):
        return {evaluate(k, scope): _leaf(v, scope) for k, v in value.items()}
    if isinstance(value, list):
        return [_leaf(item, scope) for item in value]
    if isinstance(value, str):
        if isinstance(value, (Encrypted, Unsafe)) or not any(mark in value for mark in _MARKS):
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
            f"the condition '{_short(str(source))}' gave {value!r} ({kind}), not true or false; "
            "compare it, or use '| bool'"
        )
    return value


def render(source: str, scope: Scope) -> str:
    """A template file to text, with as many newlines at its end as it has itself."""
    text = str(_run("text", source, scope))
    ends = len(source) - len(source.rstrip("\n"))
    return text + "\n" * max(0, ends - (len(text) - len(text.rstrip("\n"))))


def _run(kind: str, source: str, scope: Scope) -> Any:
    try:
        function = _compiled.get((kind, source))
        if function is None:
            function = _compiled[kind, source] = _compile(kind, source)
        return function(scope)
    except (NeedResult, TemplateProblem):
        raise
    except UndefinedError as problem:
        said = problem.message or "a value is undefined"
        raise UndefinedName(f"'{_short(source)}': {said}") from None
    except Exception as problem:  # a filter may raise anything on odd input: it is the template's fault
        said = str(problem) or type(problem).__name__
        raise TemplateProblem(f"'{_short(source)}': {said.splitlines()[0]}") from None


def _backslashes(source: str) -> str:
    """YAML has read the backslashes already: in `{{ x | regex_replace('a', '\\1') }}` Jinja2 must not again.

    As in Ansible: in `{{ }}` of values, not in `{% %}`, conditions and template files.
    """
    if "\\" not in source:
        return source
    found, inside = [], False
    for _, kind, text in _ENVIRONMENT.lexer.tokeniter(source, None):
        inside = kind == "variable_begin" or (inside and kind != "variable_end")
        found.append(text.replace("\\", "\\\\") if inside and kind == "string" else text)
    return "".join(found)


def _compile(kind: str, source: str) -> Callable[[Scope], Any]:
    if kind == "value":
        source = _backslashes(source)
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
