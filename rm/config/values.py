"""The values of one layer of the configuration: what a file or a variable sets, and where."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from rm.config.sections import OPEN_TABLES, SECTIONS
from rm.errors import ConfigError
from rm.hints import did_you_mean, not_utf8, toml_fault


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


def file_values(file: str) -> Iterator[tuple[str, Any, str]]:
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
    lines = _line_numbers(text)
    for section, value in tables.items():
        _check_section(section, value, f"{file}:{lines.get(section, 1)}")
    for key, value in flatten(tables):
        if value == {}:
            continue
        line = lines.get(key)
        origin = f"{file}:{line}" if line else file
        check_key(key, origin)
        yield key, value, origin


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


_HEADER = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w.\-\"']+)\s*=")


def _line_numbers(text: str) -> dict[str, int]:
    """Dotted key -> line, for messages only; TOML's odder spellings are simply not found."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = re.sub(r"[\"' ]", "", header[1])
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            name = re.sub(r"[\"' ]", "", key[1])
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def check_key(key: str, where: str) -> None:
    section, _, rest = key.partition(".")
    if section not in SECTIONS:
        raise ConfigError(
            f"There is no section [{section}] ({where}).", did_you_mean(section, list(SECTIONS))
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


def plain(text: str) -> str:
    sentence = text.replace("`", "'").rstrip(".")
    return sentence[:1].lower() + sentence[1:] + "."
