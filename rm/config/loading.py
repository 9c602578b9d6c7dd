"""Merges the layers of the configuration into one Config, and hands open tables to their owners."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from rm import paths
from rm.config.checks import resolve
from rm.config.places import located
from rm.config.sections import Config, Options
from rm.config.values import check_key, file_values, flatten, from_text
from rm.errors import ConfigError
from rm.hints import did_you_mean
from rm.quick_dataclass import dataclass
from rm.typed import convert, in_words

T = TypeVar("T")
UNITS = {
    "s": "seconds", "days": "days", "hours": "hours", "mb": "megabytes", "mbps": "Mbit/s", "bytes": "bytes"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """A Config and where each of its values came from: dotted key -> origin."""

    config: Config
    origins: Mapping[str, str]
    _set: Mapping[str, str]  # origins of what is set, sections and listed tables included
    _values: Mapping[str, Any]

    def located(self, sentence: str) -> str:
        """The sentence, and where it stands what it complains of, if that was set."""
        return located(sentence, self._set, self._values)


def load(
    path: str | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    euid: int | None = None,
) -> Loaded:
    """Read, merge, validate.

    Args:
        path: the rm.toml to read; None looks in the usual places and does without.
        flags: dotted key -> value, from the command line; the strongest layer.
    """
    env = os.environ if env is None else env
    euid = paths.effective_user() if euid is None else euid
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = path or next(
        (f for f in paths.config_files(env, euid) if env.get("RM_CONFIG") or os.path.exists(f)), ""
    )
    if file:
        values, origins = file_values(file)
    for name, text in sorted(env.items()):
        if name.startswith("RM_") and "__" in name:
            key = name[3:].lower().replace("__", ".")
            check_key(key, f"the environment variable {name}")
            values[key], origins[key] = from_text(key, text, name), name
    for key, value in (flags or {}).items():
        check_key(key, "a flag")
        values[key] = value
        origins[key] = "--" + key.rpartition(".")[2].replace("_", "-")
    try:
        config = resolve(_convert(values), env, euid)
    except ConfigError as error:
        raise ConfigError(located(error.what, origins, values), error.hint) from None
    shown = {key: origins.get(key, "default") for key, _ in flatten(config)}
    return Loaded(config, shown, origins, values)


def load_config(
    path: str | None = None, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    return load(path, env, flags).config


def _convert(values: Mapping[str, Any]) -> Config:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        table = tree
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = value
    try:
        return convert(tree, Config)
    except msgspec.ValidationError as error:
        path, what = in_words(error)
        key = path.partition("[")[0]  # `load` says where it was set
        if words := _words_of(key):
            value = values.get(key)
            raise ConfigError(
                f"{key}: {value!r:.60} is not one of its words.", did_you_mean(str(value), words)
            ) from None
        unit = UNITS.get(key.rpartition("_")[2])
        raise ConfigError(f"{key}: {what}.", f"It is in {unit}." if unit else "") from None


def _words_of(key: str) -> tuple[str, ...]:
    """The words of which a key takes one; () if it takes other values."""
    section, _, name = key.partition(".")
    kind = get_type_hints(get_type_hints(Config).get(section, object)).get(name)
    return get_args(kind) if get_origin(kind) is Literal else ()


def policy_options(config: Config, kind: str, name: str) -> Options:
    """The table `[policies.options.KIND.NAME]`, for `rm.core.registry.load`."""
    return config.policies.options.get(kind, {}).get(name.strip().replace("-", "_"), {})


def options_for(config: Config, section: str, kind: type[T]) -> T:
    """The open section `[regulate]` as `kind`, a dataclass."""
    table = getattr(config, section)
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"[{section}] has no key '{key}'.", did_you_mean(key, known))
    try:
        return convert(dict(table), kind)
    except msgspec.ValidationError as error:
        path, what = in_words(error)
        raise ConfigError(f"[{section}], {path}: {what}.") from None
