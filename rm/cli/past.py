"""Times of the past, as people write them: those of `sacct`, and of `rmx usage`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from rm.errors import UsageError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_RELATIVE = r"now(?:([+-])(\d{1,9})([a-z]*))?\Z"
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H", "%Y-%m-%d", "%m/%d/%y-%H:%M:%S", "%m/%d/%y")
_OF_THE_YEAR = ("%m%d%y", "%m/%d", "%m%d")


def past_moment(text: str, now: datetime) -> datetime:
    """`2026-01-31T16:00`, `01/31/26`, `0131`, `16:00`, `now-2days`, `today`, `midnight`; local time."""
    word = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if word in ("today", "midnight"):
        return midnight
    if word == "noon":
        return midnight.replace(hour=12)
    if word in ("yesterday", "tomorrow"):
        return midnight + timedelta(days=1 if word == "tomorrow" else -1)
    if relative := re.match(_RELATIVE, word):
        unit = relative[3] or "second"
        seconds = next(
            (size for name, size in _UNITS.items() if unit.rstrip("s") == name or unit == name[:3]), 0
        )
        if seconds:
            ahead = timedelta(seconds=int(relative[2] or 0) * seconds)
            return now - ahead if relative[1] == "-" else now + ahead
    if clock := re.match(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\Z", word):
        parts = [int(part or 0) for part in clock.groups()]
        if parts[0] < 24 and parts[1] < 60 and parts[2] < 60:
            return midnight.replace(hour=parts[0], minute=parts[1], second=parts[2])
    for form in (*_FORMS, *_OF_THE_YEAR):
        try:
            found = datetime.strptime(text.strip(), form)
        except ValueError:
            continue
        return found if found.year != 1900 else found.replace(year=now.year)
    raise UsageError(f"Invalid time specification: {text}.", "Write 2026-01-31T16:00, now-2days or midnight.")
