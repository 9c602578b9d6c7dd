"""A traffic profile with several phases, from a TOML or JSON file.

    period = "310ms"
    phases = [{ offset = "0ms", duration = "138ms", rate = "50Mbit" }, …]

Instead of text with a unit, `period_us`, `offset_us`, `duration_us` and `rate_bps` take integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm import units
from rm.errors import UsageError
from rm.submission import place


def read(file: str) -> dict[str, Any]:
    return parse(place.text_of(file, "The traffic file"), file)


def parse(text: str, file: str) -> dict[str, Any]:
    import json
    import tomllib

    text = text.removeprefix("\ufeff")  # editors on Windows begin files with a byte order mark
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:  # both decoders' errors are ValueErrors
        raise UsageError(f"The traffic file {file} is neither TOML nor JSON: {error}.") from None
    except RecursionError:
        raise UsageError(f"The traffic file {file} is nested too deeply.", "A profile is a table.") from None
    phases = value.get("phases")
    if not isinstance(phases, list) or not phases:
        raise UsageError(f"The traffic file {file} has no list 'phases'.", "Give at least one phase.")
    _only(value, ("period", "period_us", "phases"), file)
    profile = {
        "period_us": _one(value, "period", "_us", units.parse_duration_us, file, None),
        "phases": [_phase(phase, f"phase {number} of {file}") for number, phase in enumerate(phases, 1)],
    }
    return profile


def _phase(phase: Any, where: str) -> dict[str, int]:
    if not isinstance(phase, dict):
        raise UsageError(f"The {where} is not a table.", "Write offset, duration and rate.")
    _only(phase, ("offset", "offset_us", "duration", "duration_us", "rate", "rate_bps"), where)
    return {
        "offset_us": _one(phase, "offset", "_us", units.parse_duration_us, where, 0),
        "duration_us": _one(phase, "duration", "_us", units.parse_duration_us, where, None),
        "rate_bps": _one(phase, "rate", "_bps", units.parse_bandwidth_bps, where, None),
    }


def _only(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"Unknown key '{key}' in {where}.", f"Known: {', '.join(known)}.")


def _one(
    table: dict[str, Any],
    name: str,
    unit: str,
    read_text: Callable[[str], int],
    where: str,
    default: int | None,
) -> int:
    text, exact = table.get(name), table.get(name + unit)
    if isinstance(exact, int) and not isinstance(exact, bool) and text is None:
        return exact
    if isinstance(text, str) and exact is None:
        return read_text(text)
    if text is None and exact is None and default is not None:
        return default
    raise UsageError(
        f"'{name}' in {where} is missing or not understood.",
        f"Write {name} as text with its unit, or {name}{unit} as an integer.",
    )
