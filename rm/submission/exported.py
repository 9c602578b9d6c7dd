"""`--export`: which variables of the submitting environment a job gets."""

from __future__ import annotations

from rm.errors import UsageError
from rm.imported_later import re
from rm.submission.script import is_text

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_A_JOB = ("SLURM_", "SLURMD_")


def exported(text: str, environment: Mapping[str, str]) -> list[list[str]]:
    """--export: ALL, NONE, or names and assignments; with ALL among them beside everything."""
    parts = [part for part in _split_export(text) if part]
    if [part.upper() for part in parts] in (["NONE"], ["NIL"]):
        return []
    chosen: dict[str, str] = {}
    # what describes the job that submits does not describe the one that is submitted
    inherited = {name: value for name, value in environment.items() if not name.startswith(OF_A_JOB)}
    for part in parts:
        name, equals, value = part.partition("=")
        if part.upper() == "ALL":
            chosen = inherited | chosen
        elif equals and name:
            chosen[name] = value
        elif not equals and part in environment:
            chosen[part] = environment[part]
        elif equals or not re.match(r"[A-Za-z_]\w*\Z", part):
            raise UsageError(
                f"--export={text}: '{part}' is not a variable name.", "Write ALL, NONE, NAME or NAME=VALUE."
            )
    # bytes that are no UTF-8 cannot travel in JSON; such a variable is of no use to another host
    return [[name, value] for name, value in chosen.items() if is_text(name + value)]


def _split_export(text: str) -> list[str]:
    """At commas, except inside quotes: A="1,2",B=3."""
    parts, quote, current = [], "", ""
    for char in text:
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "," and not quote:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]
