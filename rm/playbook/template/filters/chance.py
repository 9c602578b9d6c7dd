"""Filters that draw or cipher: `random`, `password_hash`, `vault`, …. Lookups bring what is from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from rm.playbook.template.filters.text import refuse_undefined

# lookups that no template can name; the one called `unvault` reads a file
VAULT, UNVAULT = "\0vault", "\0unvault"


def _asked(context: Context, name: str, terms: list[Any]) -> Any:
    scope = context.parent["__scope__"]
    if scope.seek is None:
        raise ValueError(f"the filter '{name.lstrip(chr(0))}' is not possible here")
    (found,) = scope.seek(name if name[0] == "\0" else f"ansible.builtin.{name}", terms, {}, scope)
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


@pass_context
def _vault(
    context: Context, data: Any, secret: Any, salt: Any = None, vault_id: str = "filter_default",
    wrap_object: bool = False,
) -> Any:  # fmt: skip
    refuse_undefined(data)
    refuse_undefined(secret)
    if wrap_object:
        raise ValueError("the filter 'vault' has no 'wrap_object' in rm: write '!vault |' before the text")
    return _asked(context, VAULT, [data, secret, salt, vault_id])


@pass_context
def _unvault(context: Context, sealed: Any, secret: Any, vault_id: str = "filter_default") -> Any:
    refuse_undefined(sealed)
    refuse_undefined(secret)
    return _asked(context, UNVAULT, [sealed, secret])


CHANCE: dict[str, Callable[..., Any]] = {
    "random": _random,
    "shuffle": _shuffle,
    "password_hash": _password_hash,
    "vault": _vault,
    "unvault": _unvault,
}
