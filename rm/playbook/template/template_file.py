"""A template file to text: the syntax that it is written in, and other templates that it includes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from jinja2 import Environment, FunctionLoader, TemplateError, TemplateNotFound
from jinja2.utils import missing

from rm.compiled_later import compiled_later
from rm.playbook.model.problems import BadArgument, TemplateProblem
from rm.playbook.template.jinja import ENVIRONMENT, Own
from rm.playbook.template.jinja import check as check_plain
from rm.playbook.template.syntax import syntax_of
from rm.playbook.template.template import Layer, Scope, as_long, as_text, defined, guarded, render


class Described(Protocol):
    def about(self, path: str) -> tuple[str, str, datetime]: ...


_OTHERS = compiled_later(r"\b(include|import|extends)\b")


def render_file(
    text: str, scope: Scope, given: Mapping[str, Any] | None = None, read: Callable[[str], str] | None = None
) -> str:
    """The text that a template file gives. `given` are names of SYNTAX with their values; `read` gives the
    text of another template (raises BadArgument). Raises TemplateProblem or NeedResult."""
    return as_text(value_of_file(text, scope, given, read))


def value_of_file(
    text: str, scope: Scope, given: Mapping[str, Any] | None = None, read: Callable[[str], str] | None = None
) -> Any:
    """The same as the lookup gives it: a file that is a single expression keeps that one's type."""
    text, syntax = syntax_of(text, given)
    if not syntax and not _OTHERS.search(text):
        return render(text, scope)
    environment = _environment(syntax)

    def load(name: str) -> str | None:
        if read is None:
            return None
        try:
            return read(name)
        except BadArgument as problem:
            raise TemplateNotFound(name, str(problem)) from None

    environment.loader = FunctionLoader(load)
    # also seen by templates that are imported without their importer's names
    environment.globals = {**ENVIRONMENT.globals, "__scope__": scope}
    return as_long(
        guarded(text, lambda: defined(environment.from_string(text).render(__scope__=scope))), text
    )


def about_file(path: str, destination: str | None, files: Described, scope: Scope) -> Layer:
    """The names that a template has for itself; what takes work is found where it is used."""

    def moment() -> Any:
        seek = scope.seek
        return (
            seek("ansible.builtin.now", [], {}, scope)[0].replace(tzinfo=None)
            if seek is not None
            else missing
        )

    names: dict[str, Callable[[], Any]] = {
        "ansible_managed": lambda: "Ansible managed",
        "template_path": lambda: path,
        "template_fullpath": lambda: files.about(path)[0],
        "template_uid": lambda: files.about(path)[1],
        "template_mtime": lambda: files.about(path)[2],
        "template_run_date": moment,
        "template_destpath": lambda: destination,
    }
    return Layer(Late(names), False)


class Late(Mapping[str, Any]):
    """Values that are found when they are asked for."""

    def __init__(self, made: Mapping[str, Callable[[], Any]]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> Any:
        return self._made[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def check_file(text: str, given: Mapping[str, Any] | None = None, own: Own = tuple) -> None:
    """Raises TemplateProblem when a template file is malformed, or uses filters that are neither rm's nor
    among `own`."""
    text, syntax = syntax_of(text, given)
    if not syntax:
        check_plain(text, own=own, file=True)
        return
    try:
        _environment(syntax).parse(text)
    except TemplateError as problem:
        raise TemplateProblem(f"it is not a Jinja2 template: {problem.message}") from None


def _environment(syntax: Mapping[str, Any]) -> Environment:
    return ENVIRONMENT.overlay(**syntax)
