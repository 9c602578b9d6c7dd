"""Takes secrets out of what a run shows and keeps: every plaintext that the vault has opened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rm.playbook.steps import TaskResult

MARK = "********"


def masked(result: TaskResult, secrets: Iterable[str]) -> TaskResult:
    """The result without the secrets, the longest first."""
    known = sorted(secrets, key=len, reverse=True)
    if not known:
        return result
    return replace(
        result,
        task=_text(result.task, known),
        message=_text(result.message, known),
        diffs=tuple(_text(diff, known) for diff in result.diffs),
        items=tuple((_text(a, known), b, _text(c, known)) for a, b, c in result.items),
        result=_deep(result.result, known),
    )


def masked_text(text: str, secrets: Iterable[str]) -> str:
    return _text(text, sorted(secrets, key=len, reverse=True))


def _text(text: str, known: list[str]) -> str:
    for secret in known:
        if secret in text:
            text = text.replace(secret, MARK)
    return text


def _deep(value: Any, known: list[str]) -> Any:
    if isinstance(value, str):
        return _text(value, known)
    if isinstance(value, dict):
        return {_deep(k, known): _deep(v, known) for k, v in value.items()}
    return [_deep(v, known) for v in value] if isinstance(value, (list, tuple)) else value
