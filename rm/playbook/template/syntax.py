"""The syntax that a template is written in, where it says so: its first line, or arguments of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm.playbook.model.problems import TemplateProblem
from rm.python_text import literal

# what the module and the lookup take, and the first line of a template: "#jinja2: trim_blocks: False, …"
_USUAL: dict[str, Any] = {
    "block_start_string": "{%", "block_end_string": "%}", "variable_start_string": "{{",
    "variable_end_string": "}}", "comment_start_string": "{#", "comment_end_string": "#}",
    "trim_blocks": True, "lstrip_blocks": False,
}  # fmt: skip
SYNTAX = tuple(_USUAL)
HEADER = "#jinja2:"


def syntax_of(text: str, given: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """The text without its header, and what differs from the usual syntax. Raises TemplateProblem."""
    found = {name: value for name, value in (given or {}).items() if name in SYNTAX and value is not None}
    if text.startswith(HEADER):
        first, _, text = text.partition("\n")
        for pair in first.removeprefix(HEADER).split(","):
            name, colon, value = pair.partition(":")
            if not colon or name.strip() not in (*SYNTAX, "newline_sequence", "keep_trailing_newline"):
                raise TemplateProblem(f"'{first}' is not a list of Jinja2's settings")
            try:
                found[name.strip()] = literal(value.strip())
            except (ValueError, SyntaxError):
                raise TemplateProblem(f"'{value.strip()}' is not a value for '{name.strip()}'") from None
    return text, {name: value for name, value in found.items() if value != _USUAL.get(name)}
