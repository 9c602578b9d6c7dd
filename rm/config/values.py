"""The values of one layer of the configuration: what a file or a variable sets, and where."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from rm.config.places import line_numbers
from rm.config.sections import OPEN_TABLES, SECTIONS
from rm.errors import ConfigError
from rm.hints import did_you_mean, not_utf8, toml_fault

POLICY_KEY_DOTS = 4  # in policies.options.KIND.NAME.KEY


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All (dotted key, value) pairs in the order of the sections."""
    if isinstance(config, msgspec.Struct):
        for name in config.__struct_fields__:
            yield from flatten(getattr(config, name), f"{prefix}{name}.")
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from flatten(value, f"{prefix}{key}.")
    else:
        yield prefix.removesuffix("."), config


def file_values(file: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Dotted key -> value, and dotted key -> file and line, which sections and listed tables have, too."""
    try:
        text = Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"The configuration file {file} cannot be read: {error.strerror}.", "Check --config or RM_CONFIG."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"The configuration file {not_utf8(file, error)}", "Save it as UTF-8.") from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"The configuration file {toml_fault(file, error)}", "The shipped rm.toml shows the form."
        ) from None
    origins = {key: f"{file}:{line}" for key, line in line_numbers(text).items()}
    for section, value in tables.items():
        _check_section(section, value, origins.get(section, f"{file}:1"))
    values = {key: value for key, value in flatten(tables) if value != {}}
    for key in values:
        check_key(key, origins.setdefault(key, file))
    return values, origins


def _check_section(section: str, value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        check_key(f"{section}.", where)
    elif section in SECTIONS:
        raise ConfigError(f"{section} ({where}) is a section.", f"Write [{section}].")
    else:
        having = [
            name for name, kind in SECTIONS.items() if section in getattr(kind, "__struct_fields__", ())
        ]
        raise ConfigError(
            f"'{section}' ({where}) stands in no section.",
            f"Put it below {' or '.join(f'[{name}]' for name in having[:3])}." if having else "",
        )


def check_key(key: str, where: str) -> None:
    section, _, rest = key.partition(".")
    if section not in SECTIONS:
        raise ConfigError(
            f"There is no section [{section}] ({where}).", did_you_mean(section, list(SECTIONS))
        )
    if key.startswith("policies.options.") and key.count(".") < POLICY_KEY_DOTS:
        raise ConfigError(
            f"'{key}' ({where}) is no option of a policy.",
            "Put it below [policies.options.KIND.NAME], such as [policies.options.queue.multifactor].",
        )
    if any(key.startswith(table + ".") for table in OPEN_TABLES):
        return
    known = SECTIONS[section].__struct_fields__
    if rest and rest not in known:
        raise ConfigError(f"[{section}] has no key '{rest}' ({where}).", did_you_mean(rest, known))


def from_text(key: str, text: str, variable: str) -> Any:
    """The value of an environment variable, by the type of the key it sets."""
    section, _, name = key.partition(".")
    kind = None if section in OPEN_TABLES else get_type_hints(SECTIONS[section]).get(name)
    if kind is str:
        return text
    if kind == tuple[str, ...] and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if kind is not None:
            raise ConfigError(
                f"{variable}='{text}' is not a value for {key}.", "Write it as in rm.toml."
            ) from None
        return text
