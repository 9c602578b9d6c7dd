"""Facts of the time at which facts were gathered, in the host's own time zone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any


def facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    if "now" not in raw:
        return {}
    seconds = float(raw["now"])
    offset = timedelta(seconds=int(raw.get("utc_offset_s", 0)))
    local = datetime.fromtimestamp(seconds, timezone(offset))
    universal = datetime.fromtimestamp(seconds, UTC)
    return {
        "date_time": {
            "year": local.strftime("%Y"),
            "month": local.strftime("%m"),
            "weekday": local.strftime("%A"),
            "weekday_number": local.strftime("%w"),
            "weeknumber": local.strftime("%W"),
            "day": local.strftime("%d"),
            "hour": local.strftime("%H"),
            "minute": local.strftime("%M"),
            "second": local.strftime("%S"),
            "epoch": str(int(seconds)),
            "epoch_int": str(int(seconds)),
            "date": local.strftime("%Y-%m-%d"),
            "time": local.strftime("%H:%M:%S"),
            "iso8601_micro": universal.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "iso8601": universal.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "iso8601_basic": local.strftime("%Y%m%dT%H%M%S%f"),
            "iso8601_basic_short": local.strftime("%Y%m%dT%H%M%S"),
            "tz": str(raw.get("timezone", "UTC")),
            "tz_dst": str(raw.get("timezone_dst", "UTC")),
            "tz_offset": local.strftime("%z"),
        }
    }
