"""The Jinja2 that playbooks are written in: sandboxed, strict about undefined names, without chance or clock.

A template runs with a scope (`rm/playbook/template/template.py`) under the name `__scope__`, which `lookup`
asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import UTC
from typing import Any

from jinja2 import StrictUndefined, TemplateError, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace, missing

from rm.hints import did_you_mean, nearest
from rm.playbook.model.keywords import LATER
from rm.playbook.model.located import Unsafe
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.template.filters import FILTERS, IMPURE_FILTERS, LOOKUPS, TESTS
from rm.playbook.template.native import OMIT, CodeGenerator, concat
from rm.playbook.template.syntax import HEADER, syntax_of

OWN_LOOKUPS: set[str] = set()  # those that the runs of this process have brought along
BUILTIN = "ansible.builtin."  # before the name of a lookup of rm's that no other stands for

MARKS = ("{{", "{%", "{#")


class NeedResult(Exception):
    """The expression needs the result of a step that has not run yet."""


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


class _Context(Context):
    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        scope = self.parent.get("__scope__")
        value = scope.lookup(key) if scope is not None else missing
        return super().resolve_or_missing(key) if value is missing else value


@pass_context
def _as_it_is(context: Context, value: Any) -> Any:
    """Asks for a context, so that Jinja2 does not make text of constants beforehand."""
    return value


class _Environment(SandboxedEnvironment):
    context_class = _Context
    code_generator_class = CodeGenerator
    concat = staticmethod(concat)


def _environment() -> _Environment:
    environment = _Environment(
        undefined=Absent,
        finalize=_as_it_is,
        trim_blocks=True,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )
    for name in IMPURE_FILTERS:
        del environment.filters[name]
    environment.filters.update(FILTERS)
    environment.tests.update(TESTS)
    environment.globals = {
        "range": environment.globals["range"], "dict": dict, "omit": OMIT, "namespace": Namespace,
        "lookup": _lookup, "query": _query, "q": _query, "undef": _undef, "now": _now,
        "cycler": Cycler, "joiner": Joiner,
    }  # fmt: skip
    return environment


def _undef(hint: str = "") -> Absent:
    return Absent(hint=hint or None)


def _sought(context: Context, name: str, terms: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    scope = context.parent["__scope__"]
    if scope.seek is None:
        raise TemplateProblem(f"the lookup '{name}' is not possible here")
    found: list[Any] = scope.seek(name, list(terms), options, scope)
    return found


@pass_context
def _now(context: Context, utc: bool = False, fmt: str | None = None) -> Any:
    (moment,) = _sought(context, BUILTIN + "now", (), {})
    moment = moment.astimezone(UTC).replace(tzinfo=None) if utc else moment.replace(tzinfo=None)
    return moment.strftime(fmt) if fmt else moment


@pass_context
def _query(context: Context, name: str, *terms: Any, **options: Any) -> Any:
    return _lookup(context, name, *terms, **{**options, "wantlist": True})


@pass_context
def _lookup(context: Context, name: str, *terms: Any, wantlist: bool = False, **options: Any) -> Any:
    """As Ansible's: one value as it is, several texts joined by commas; none gives an empty list."""
    errors = options.pop("errors", "strict")
    try:
        found = _sought(context, name, terms, options)
    except TemplateProblem:
        if errors == "strict":
            raise
        return [] if wantlist else None
    if wantlist:
        return found
    if len(found) == 1:
        return found[0]
    return ",".join(found) if found and all(isinstance(one, str) for one in found) else found


ENVIRONMENT = _environment()
_OURS = {"filter": dict(ENVIRONMENT.filters), "test": dict(ENVIRONMENT.tests), "lookup": LOOKUPS}
Own = Callable[[], Collection[tuple[str, str]]]  # (kind, name) of the plug-ins that come with a playbook


def check(source: str, expression: bool = False, own: Own = tuple, file: bool = False) -> None:
    """Raises TemplateProblem when a template, an expression or the text of a template file is malformed, or
    uses filters that are neither rm's nor among `own`, whatever other playbooks of this process have."""
    try:
        if expression:
            tree = ENVIRONMENT.parse("{{ " + inlined(source) + " }}")
        elif file:
            tree = ENVIRONMENT.parse(source)
        elif source.startswith(HEADER):
            text, syntax = syntax_of(source)
            tree = ENVIRONMENT.overlay(**syntax).parse(text)
        else:
            tree = ENVIRONMENT.parse(backslashes(source))
    except TemplateError as problem:
        raise TemplateProblem(f"'{short(source)}' is not a Jinja2 template: {problem.message}") from None
    for kind, what in (("filter", nodes.Filter), ("test", nodes.Test)):
        for node in tree.find_all(what):
            if not _is_known(kind, node.name, own):
                known = [*_OURS[kind], *(name for its, name in own() if its == kind)]
                near = nearest(node.name.removeprefix(BUILTIN), known)
                hint = f" Did you mean '{near}'?" if near else ""
                raise TemplateProblem(f"unknown {kind} '{node.name}'.{hint}")
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "lipsum":
            raise TemplateProblem("'lipsum' gives another text each time, which rm does not follow")
        if not isinstance(call.node, nodes.Name) or call.node.name not in ("lookup", "query", "q"):
            continue
        first = call.args[0] if call.args else None
        if isinstance(first, nodes.Const):
            name = str(first.value).removeprefix(BUILTIN)
            if not _is_known("lookup", name, own):
                hint = LATER.get(f"with_{name}") or did_you_mean(name, LOOKUPS)
                raise TemplateProblem(f"unknown lookup '{name}'. {hint}")


def _is_known(kind: str, name: str, own: Own) -> bool:
    return name in _OURS[kind] or (kind, name) in own()


def bare(source: str) -> str:
    """A condition without the braces that some people put around the whole of it."""
    whole = re.fullmatch(r"\s*\{\{-?((?:(?!\{\{|\}\}).)*?)-?\}\}\s*", source, re.DOTALL)
    return whole[1].strip() if whole else source


def inlined(source: str) -> str:
    """A condition with the templates in its texts as parts of it: `a == "x{{ b }}"` is `a == ("x" ~ (b))`. As
    in ansible-core, a text that is one template has its value, of whatever type."""
    if "{{" not in source:
        return source
    try:
        tokens = list(ENVIRONMENT.lex("{{ " + source + " }}"))[2:-2]
    except TemplateError:
        return source  # `check` says what is wrong
    found, texts, space = "", [], ""  # texts that follow each other are one to Jinja2
    for _, kind, text in [*tokens, (0, "end", "")]:
        if kind == "string":
            texts.append(space + text)
        elif kind == "whitespace" and texts:
            space = text
            continue
        else:
            found += _inlined(texts) + space + text
            texts = []
        space = ""
    return found


def _inlined(texts: list[str]) -> str:
    """The expression for texts as they are written; they themselves where they hold no template, or an empty
    one, or statements."""
    written = "".join(texts)
    if "{{" not in written:
        return written
    read = (text.strip()[1:-1].encode("ascii", "backslashreplace").decode("unicode-escape") for text in texts)
    parts: list[str] = []
    inside = ""
    try:
        for _, kind, part in ENVIRONMENT.lexer.tokeniter("".join(read), None):
            if kind == "variable_begin":
                inside = "("
            elif kind == "variable_end":
                if not inside[1:].strip():
                    return written
                parts.append(f"{inside})")
                inside = ""
            elif inside:
                inside += part
            elif kind == "data":
                parts.append(repr(part))
            else:
                return written
    except TemplateError:
        return written
    if inside:  # not closed
        return written
    return parts[0] if len(parts) == 1 else f"({' ~ '.join(parts)})"


def is_template(text: str) -> bool:
    return any(mark in text for mark in MARKS) or text.startswith(HEADER)


def has_template(value: Any) -> bool:
    """Does the value hold a template anywhere?"""
    if isinstance(value, str):
        return is_template(value) and not isinstance(value, Unsafe)
    if isinstance(value, dict):
        return any(has_template(x) for pair in value.items() for x in pair)
    return isinstance(value, list) and any(map(has_template, value))


def backslashes(source: str) -> str:
    """YAML has read the backslashes already: in `{{ x | regex_replace('a', '\\1') }}` Jinja2 must not again.

    As in Ansible: in `{{ }}` of values, not in `{% %}`, conditions and template files.
    """
    if "\\" not in source:
        return source
    found, inside = [], False
    for _, kind, text in ENVIRONMENT.lexer.tokeniter(source, None):
        inside = kind == "variable_begin" or (inside and kind != "variable_end")
        found.append(_literally(text) if inside and kind == "string" else text)
    return "".join(found)


def _literally(text: str) -> str:
    """A string of an expression whose backslashes are no escapes, also before its own quotation mark."""
    quote, body = text[0], text[1:-1]
    doubled = body.replace("\\", "\\\\").replace(quote, "\\" + quote)
    return f"{quote}{doubled}{quote}"


def short(source: str) -> str:
    flat = " ".join(source.split())
    return flat if len(flat) <= 80 else flat[:77] + "..."
