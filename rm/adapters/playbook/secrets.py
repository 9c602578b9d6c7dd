"""Takes secrets out of what a run shows and keeps: every plaintext that the vault has opened."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rm.adapters.playbook.vault import SECRET_MIN
from rm.playbook.model.steps import TaskResult

MARK = "********"


def masked(result: TaskResult, secrets: Iterable[str]) -> TaskResult:
    """The result without the secrets, in any form of them."""
    known = _forms(frozenset(secrets))
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
    return _text(text, _forms(frozenset(secrets)))


@lru_cache(maxsize=8)
def _forms(secrets: frozenset[str]) -> tuple[str, ...]:
    """The secrets as they may show: as they are, in base64, with escapes (as a text in Python or JSON has
    them), and line by line, as a diff has them. The longest first."""
    forms: set[str] = set()
    for secret in secrets:
        forms.add(secret)
        forms.add(b64encode(secret.encode()).decode())
        lines = secret.splitlines()
        for one in (secret, *(line for line in lines if len(line.strip()) >= SECRET_MIN)):
            whole = one.strip()
            forms |= {whole, json.dumps(whole)[1:-1], json.dumps(whole, ensure_ascii=False)[1:-1]}
            # as Python shows it: alone, and in a text with both quotation marks, where it escapes one
            forms |= {repr(whole)[1:-1], repr(whole + "'\"")[1:-4]}
    return tuple(sorted(forms - {""}, key=len, reverse=True))


def _text(text: str, known: tuple[str, ...]) -> str:
    for secret in known:
        if secret in text:
            text = text.replace(secret, MARK)
    return text


def _deep(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _text(value, known)
    if isinstance(value, dict):
        return {_deep(k, known): _deep(v, known) for k, v in value.items()}
    return [_deep(v, known) for v in value] if isinstance(value, (list, tuple)) else value
