"""The text of --begin."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from rm.errors import UsageError

_OFFSET = r"now(?:\s*\+\s*(\d+)\s*([a-z]*))?\Z"
_AT = r"(\d{1,2}):(\d{2})(?::(\d{2}))?\Z"
_DAY_TIMES = {"midnight": 0, "noon": 12, "teatime": 16}
_OFFSET_UNITS = {
    "": "seconds",
    "second": "seconds",
    "minute": "minutes",
    "hour": "hours",
    "day": "days",
    "week": "weeks",
}


def begin_us(text: str, now: datetime) -> int:
    """Slurm's --begin: `now+1hour`, `16:00`, `tomorrow`, `noon`, ISO dates; local time.

    A time of day that has passed means tomorrow. Microseconds since the epoch.
    """
    word = text.strip().lower()
    when: datetime | None = None
    if offset := re.match(_OFFSET, word):
        unit = _OFFSET_UNITS.get((offset[2] or "").removesuffix("s") if offset[2] != "s" else "second")
        if unit is not None:
            when = now + timedelta(**{unit: int(offset[1] or 0)})
    elif word == "tomorrow" or word == "today":
        when = now + timedelta(days=word == "tomorrow")
    elif (clock := re.match(_AT, word)) or word in _DAY_TIMES:
        hour, minute, second = (
            (int(clock[1]), int(clock[2]), int(clock[3] or 0)) if clock else (_DAY_TIMES[word], 0, 0)
        )
        if hour < 24 and minute < 60 and second < 60:
            when = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            if when <= now:
                when += timedelta(days=1)
    else:
        try:
            when = datetime.fromisoformat(text.strip())
        except ValueError:
            when = None
    if when is None:
        raise UsageError(f"--begin is '{text}'.", "Write now+1hour, 16:00, tomorrow or 2030-01-31T16:00.")
    return round(when.timestamp() * 1_000_000)
