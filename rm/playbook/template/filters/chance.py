"""Filters that draw: `random`, `shuffle`, `password_hash`. Lookups bring the numbers from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from rm.playbook.template.filters.text import refuse_undefined


def _asked(context: Context, name: str, terms: list[Any]) -> Any:
    scope = context.parent["__scope__"]
    if scope.seek is None:
        raise ValueError(f"the filter '{name}' is not possible here")
    (found,) = scope.seek(f"ansible.builtin.{name}", terms, {}, scope)
    return found


@pass_context
def _random(context: Context, end: Any, start: Any = None, step: Any = None, seed: Any = None) -> Any:
    refuse_undefined(end)
    return _asked(context, "random", [end, start, step, seed])


@pass_context
def _shuffle(context: Context, values: Any, seed: Any = None) -> Any:
    refuse_undefined(values)
    return _asked(context, "shuffle", [values, seed])


@pass_context
def _password_hash(
    context: Context, password: Any, hashtype: str = "sha512", salt: Any = None, salt_size: Any = None,
    rounds: Any = None, ident: Any = None,
) -> Any:  # fmt: skip
    refuse_undefined(password)
    return _asked(context, "password_hash", [password, hashtype, salt, salt_size, rounds, ident])


CHANCE: dict[str, Callable[..., Any]] = {
    "random": _random,
    "shuffle": _shuffle,
    "password_hash": _password_hash,
}
