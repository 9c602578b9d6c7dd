"""--time and --time-min, as fields of a job's specification."""

from __future__ import annotations

from rm import units
from rm.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def time_limit(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"time_limit_us": units.parse_time_limit_us(values["time"])} if "time" in values else {}


def time_min(values: Mapping[str, Any]) -> dict[str, Any]:
    if "time_min" not in values:
        return {}
    try:
        least_us = units.parse_time_limit_us(values["time_min"])
    except UsageError as error:
        raise UsageError(f"--time-min: {error.what}", error.hint) from None
    try:
        limit_us = time_limit(values).get("time_limit_us")
    except UsageError:  # which is said of --time itself
        limit_us = None
    if least_us and limit_us and least_us > limit_us:
        raise UsageError("--time-min is longer than --time.", "Write less, or leave it out.")
    return {"time_min_us": least_us} if least_us else {}
