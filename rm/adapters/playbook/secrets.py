"""Takes secrets out of what a run shows and keeps: every plaintext that the vault has opened."""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from rm.adapters.playbook.vault import SECRET_MIN
from rm.playbook.model.steps import TaskResult
from rm.playbook.run.outcome import PRINTED_MOST

MARK = "********"


def masked(result: TaskResult, secrets: Iterable[str]) -> TaskResult:
    """The result without the secrets, in any form of them."""
    known = _forms(frozenset(secrets))
    if not known:
        return result
    return replace(
        result,
        task=_text(result.task, known),
        message=_message(result.message, _told(result), known),
        diffs=tuple(_text(diff, known) for diff in result.diffs),
        items=tuple(
            (_text(label, known), status, _message(message, of, known))
            for (label, status, message), of in zip(result.items, _each(result), strict=True)
        ),
        result=_deep(result.result, known),
    )


def _each(result: TaskResult) -> Sequence[Any]:
    """The results of the items of a loop."""
    found = result.result.get("results")
    return found if isinstance(found, list) and len(found) == len(result.items) else [{}] * len(result.items)


def _told(result: TaskResult) -> Any:
    """The result whose message is the task's: of a loop the first one that failed."""
    failed = (one for one in _each(result) if isinstance(one, Mapping) and one.get("failed"))
    return next(failed, {}) if result.items else result.result


def _message(text: str, result: Any, known: tuple[str, ...]) -> str:
    """A message that ends with the end of what a command printed begins that end anywhere, also in the
    middle of a secret: the whole is masked, then cut."""
    printed = result if isinstance(result, Mapping) else {}
    whole = str(printed.get("stderr") or printed.get("stdout") or "").strip()
    end = whole[-PRINTED_MOST:]
    if len(whole) == len(end) or not text.endswith(end):
        return _text(text, known)
    return _text(text[: -len(end)], known) + _text(whole, known)[-PRINTED_MOST:]


def masked_text(text: str, secrets: Iterable[str]) -> str:
    return _text(text, _forms(frozenset(secrets)))


@lru_cache(maxsize=8)
def _forms(secrets: frozenset[str]) -> tuple[str, ...]:
    """The secrets as they may show: as they are, in base64, with escapes (as a text in Python, JSON, a
    shell's command or an address has them), and line by line, as a diff has them. The longest first."""
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
            # as the filters `quote` and `urlencode` give it, of which commands and addresses are made
            forms |= {shlex.quote(whole).strip("'"), quote(whole), quote(whole, safe=""), quote_plus(whole)}
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
