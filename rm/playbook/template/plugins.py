"""Filters, tests and lookups that are not rm's, by name: each run's own are asked for by a lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from rm.playbook.template.jinja import ENVIRONMENT, OWN_LOOKUPS
from rm.playbook.template.template import forget_compiled

OWN = {"filter": "\0filter", "test": "\0test"}  # lookups that no template can name
_PASSED = {
    "context": lambda c: c,
    "eval_context": lambda c: c.eval_ctx,
    "environment": lambda c: c.environment,
}
_known: set[tuple[str, str]] = set()


def know(kind: str, name: str) -> None:
    """From now on templates may use a plug-in of this name, in runs that have one."""
    if kind == "lookup":
        OWN_LOOKUPS.add(name)
        return
    table: Any = ENVIRONMENT.filters if kind == "filter" else ENVIRONMENT.tests
    if (kind, name) not in _known:
        _known.add((kind, name))
        table[name] = _asking(kind, name, table.get(name))
        forget_compiled()  # it calls what had this name until now


def is_asked_for(kind: str, name: str) -> bool:
    """Has a run had a plug-in of this name?"""
    return (kind, name) in _known


def _asking(kind: str, name: str, before: Callable[..., Any] | None) -> Callable[..., Any]:
    @pass_context
    def ask(context: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(context, Context) and before is not None:  # compiled before this name was known
            return before(context, *args, **kwargs)
        scope = context.parent["__scope__"]
        found = scope.seek(OWN[kind], [name, list(args)], kwargs, scope) if scope.seek is not None else []
        if found:
            return found[0]
        if before is None:
            raise ValueError(f"No {kind} named '{name}'.")  # as where no run has had one
        passed = getattr(before, "jinja_pass_arg", None)
        more = (_PASSED[passed.name](context),) if passed is not None else ()
        return before(*more, *args, **kwargs)

    return ask
