"""`order`, `serial` and `max_fail_percentage`: a play's hosts in their order and in rolling batches, and when
the rest is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rm.errors import UsageError
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play
from rm.playbook.template.template import Scope, evaluate


def in_order(play: Play, names: Sequence[str]) -> list[str]:
    """The hosts as `order` says; `names` are in the order of the pattern."""
    found = sorted(names) if play.order.endswith("sorted") else list(names)
    return found[::-1] if play.order.startswith("reverse") else found


def max_fail(play: Play, scope: Scope) -> float | None:
    """More failures than this percentage of a batch end the play; None: they do not. Raises UsageError."""
    if play.max_fail_percentage is None:
        return None
    text = _evaluated(play, "max_fail_percentage", play.max_fail_percentage, scope)
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise UsageError(f"{play.file}:{play.line}: max_fail_percentage is '{text}', not a number.") from None


def batches(play: Play, scope: Scope, names: Sequence[str]) -> list[list[str]]:
    """The hosts part by part: numbers or percentages of them; the last size repeats. Raises UsageError."""
    sizes = _sizes(play, scope)  # also where no host is left: errors are reported
    rest = list(names)
    if not sizes or not rest:
        return [rest]
    parts = []
    while rest:
        text = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        count = len(names) * int(text[:-1]) // 100 if text.endswith("%") else int(text)
        count = max(1, count) if text not in ("0", "-1") else len(names)
        parts.append(rest[:count])
        rest = rest[count:]
    return parts


def _sizes(play: Play, scope: Scope) -> list[str]:
    sizes: list[str] = []
    for one in play.serial:
        text = _evaluated(play, "serial", one, scope)
        if not text.removesuffix("%").lstrip("-").isdecimal():
            raise UsageError(f"{play.file}:{play.line}: 'serial' is '{text}', not a number or a percentage.")
        sizes.append(text)
    return sizes


def _evaluated(play: Play, what: str, value: Any, scope: Scope) -> str:
    try:
        return str(evaluate(value, scope)).strip()
    except TemplateProblem as problem:
        raise UsageError(f"{play.file}:{play.line}: '{what}': {problem}.", "Set it with -e.") from None
