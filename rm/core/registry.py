"""The registry of policies: a policy's file name is its name in rm.toml.

`rm/policies/<kind>/<name>.py` defines `POLICY`, called with no argument, or with one instance of
the dataclass `OPTIONS` where the file defines one. Hyphens in names stand for underscores.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any

from rm.errors import ConfigError
from rm.hints import did_you_mean

KINDS = ("queue", "placement", "comm")


@cache
def names(kind: str) -> tuple[str, ...]:
    """All policies of one kind, sorted, spelled as in rm.toml (with hyphens)."""
    package = importlib.import_module(_package(kind))
    found = pkgutil.iter_modules(package.__path__)
    return tuple(sorted(m.name.replace("_", "-") for m in found if not m.ispkg and m.name[0] != "_"))


def load(kind: str, name: str, options: Mapping[str, object] | None = None) -> Any:
    """The policy object called `name`; raises ConfigError for unknown names and options."""
    module, filled = _chosen(kind, name, options)
    return module.POLICY() if filled is None else module.POLICY(filled)


def options_in_force(kind: str, name: str, options: Mapping[str, object] | None = None) -> dict[str, object]:
    """All options of the policy that `load` makes of these arguments, the defaults included."""
    filled = _chosen(kind, name, options)[1]
    return {} if filled is None else {f.name: getattr(filled, f.name) for f in fields(filled)}


def _chosen(kind: str, name: str, options: Mapping[str, object] | None) -> tuple[Any, Any]:
    """(the policy's module, an instance of its OPTIONS or None)."""
    known = names(kind)
    wanted = name.strip().replace("_", "-")
    if wanted not in known:
        raise ConfigError(f"There is no {kind} policy '{name}'.", did_you_mean(wanted, known))
    module = importlib.import_module(f"{_package(kind)}.{wanted.replace('-', '_')}")
    if not hasattr(module, "POLICY"):
        raise ConfigError(f"{module.__name__} defines no POLICY.", "Add POLICY = <the policy's class>.")
    chosen = {key.replace("-", "_"): value for key, value in (options or {}).items()}
    form = getattr(module, "OPTIONS", None)
    if form is None:
        if chosen:
            raise ConfigError(
                f"The {kind} policy {wanted!r} has no options, but {', '.join(sorted(chosen))} was given.",
                "Remove it from rm.toml.",
            )
        return module, None
    return module, _filled(form, chosen, f"{kind} policy {wanted!r}")


def _package(kind: str) -> str:
    if kind not in KINDS:
        raise ConfigError(f"There is no kind of policy {kind!r}.", f"Known are: {', '.join(KINDS)}.")
    return f"rm.policies.{kind}"


def _filled(form: Any, chosen: Mapping[str, object], whose: str) -> Any:
    if not isinstance(form, type) or not is_dataclass(form):
        raise ConfigError(f"OPTIONS of the {whose} is not a dataclass.", "Make it one.")
    known = {f.name: f for f in fields(form)}
    values: dict[str, object] = {}
    for key, value in chosen.items():
        if key not in known:
            raise ConfigError(f"The {whose} has no option '{key}'.", did_you_mean(key, known))
        values[key] = _fitting(known[key], value, whose)
    return form(**values)


def _fitting(field: Field[Any], value: object, whose: str) -> object:
    """`value` as the type of the field's default; bool is not a number here."""
    default = field.default
    if default is MISSING or default is None or (isinstance(value, bool) and isinstance(default, bool)):
        return value
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool):
        return value
    raise ConfigError(
        f"Option {field.name!r} of the {whose} is {value!r}, but must be {type(default).__name__}.",
        f"Its default is {default!r}.",
    )
