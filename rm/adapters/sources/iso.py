"""ISO 8601 durations, as perfSONAR writes them: PT0.6S, PT4H, P1DT12H."""

from __future__ import annotations

import re
from typing import Any

_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_UNITS = (604_800, 86_400, 3_600, 60, 1)


def seconds_of(value: Any) -> float:
    """Of a duration, or of a number of seconds. Raises ValueError or TypeError for anything else."""
    if not isinstance(value, str):
        return float(value)
    match = _ISO.fullmatch(value)
    if match is None or not any(match.groups()):
        raise ValueError(f"'{value:.40}' is not a duration")
    return sum(float(g or 0) * unit for g, unit in zip(match.groups(), _UNITS, strict=True))


def iso_of(us: int) -> str:
    """Microseconds as an ISO 8601 duration."""
    return f"PT{us / 1e6:.6f}".rstrip("0").rstrip(".") + "S"
