"""A template file to text: the syntax that it is written in, and other templates that it includes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, FunctionLoader, TemplateError, TemplateNotFound

from rm.playbook.model.problems import BadArgument, TemplateProblem
from rm.playbook.template.jinja import ENVIRONMENT
from rm.playbook.template.jinja import check as check_plain
from rm.playbook.template.template import Scope, as_long, guarded, render

# what the module and the lookup take, and the first line of a file: "#jinja2: trim_blocks: False, …"
SYNTAX = (
    "block_start_string", "block_end_string", "variable_start_string", "variable_end_string",
    "comment_start_string", "comment_end_string", "trim_blocks", "lstrip_blocks",
)  # fmt: skip
HEADER = "#jinja2:"
_OTHERS = re.compile(r"\b(include|import|extends)\b")
_USUAL = {name: getattr(ENVIRONMENT, name) for name in SYNTAX}


def render_file(
    text: str, scope: Scope, given: Mapping[str, Any] | None = None, read: Callable[[str], str] | None = None
) -> str:
    """The text that a template file gives. `given` are names of SYNTAX with their values; `read` gives the
    text of another template (raises BadArgument). Raises TemplateProblem or NeedResult."""
    text, syntax = _syntax(text, given or {})
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
    made = guarded(text, lambda: environment.from_string(text).render(__scope__=scope))
    return as_long(made, text)


def check_file(text: str, given: Mapping[str, Any] | None = None) -> None:
    """Raises TemplateProblem when a template file is malformed."""
    text, syntax = _syntax(text, given or {})
    if not syntax:
        check_plain(text)
        return
    try:
        _environment(syntax).parse(text)
    except TemplateError as problem:
        raise TemplateProblem(f"it is not a Jinja2 template: {problem.message}") from None


def _environment(syntax: Mapping[str, Any]) -> Environment:
    # what is included ends without its newline; the file itself gets it back
    return ENVIRONMENT.overlay(**{"keep_trailing_newline": False, **syntax})


def _syntax(text: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text without its header, and what differs from the usual syntax."""
    found = {name: value for name, value in given.items() if name in SYNTAX and value is not None}
    if text.startswith(HEADER):
        first, _, text = text.partition("\n")
        for pair in first.removeprefix(HEADER).split(","):
            name, colon, value = pair.partition(":")
            if not colon or name.strip() not in (*SYNTAX, "newline_sequence", "keep_trailing_newline"):
                raise TemplateProblem(f"'{first}' is not a list of Jinja2's settings")
            try:
                found[name.strip()] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                raise TemplateProblem(f"'{value.strip()}' is not a value for '{name.strip()}'") from None
    return text, {name: value for name, value in found.items() if value != _USUAL.get(name)}
