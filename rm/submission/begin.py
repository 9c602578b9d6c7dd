"""The text of --begin and --deadline, and of the times of lists of what was.

Source: sbatch(1) of Slurm 22.05, "--begin" and "--deadline".
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from rm.errors import Refusal, UsageError

_OFFSET = r"now(?:\s*([+-])\s*(\d+)\s*([a-z]*))?\Z"
_EPOCH = r"uts(\d{1,12})\Z"
_CLOCK = r"(\d{1,2})(?::(\d{2})(?::(\d{2}))?)?(?:\s*([ap]m))?\Z"
_DATE = r"(\d{1,2})[/.](\d{1,2})(?:[/.](\d{4}|\d{2}))?\Z"
_DIGITS = r"(\d{2})(\d{2})(\d{2})?\Z"  # MMDD[YY]
_DAY_TIMES = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
_DAYS = {"today": 0, "tomorrow": 1}
_OFFSET_UNITS = {
    "": "seconds",
    "second": "seconds",
    "minute": "minutes",
    "hour": "hours",
    "day": "days",
    "week": "weeks",
}


def begin_us(text: str, now: datetime, option: str = "--begin") -> int:
    """Slurm's forms: `now+1hour`, `16:00`, `4:00pm`, `tomorrow`, `noon`, `fika`, `12/31`, `123130`, ISO
    dates, and a time of day beside a date or `tomorrow`; local time.

    A time of day that has passed means tomorrow, and a day that has passed next year's. Microseconds since
    the epoch.

    Raises:
        UsageError: it is none of these.
    """
    try:
        when = _offset(text, now) or _iso(text, now) or _spoken(text, now)
    except (ValueError, OverflowError):  # such as 25:00, or the 31st of February
        when = None
    if when is None:
        raise UsageError(
            f"{option} is '{text}'.", "Write now+1hour, 16:00, tomorrow, 12/31 or 2030-01-31T16:00."
        )
    return round(when.timestamp() * 1_000_000)


def past_moment(text: str, now: datetime) -> datetime:
    """As `sacct --starttime` has it: the same forms, `now-2days`, `yesterday` and `uts1767225600`; a time of
    day is today's. A month that has not begun is last year's.

    Source: parse_time.c of Slurm 22.05, of which `yesterday` is not.

    Raises:
        UsageError: it is none of these.
    """
    word = text.strip().lower()
    if word == "yesterday":
        return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    try:
        if found := re.match(_EPOCH, word):
            return datetime.fromtimestamp(int(found[1]), now.tzinfo)
        when = _offset(text, now, past=True) or _iso(text, now) or _spoken(text, now, past=True)
    except (ValueError, OverflowError, OSError):
        when = None
    if when is None:
        raise UsageError(
            f"Invalid time specification: {text}.", "Write 2026-01-31T16:00, now-2days or midnight."
        )
    return when


def _offset(text: str, now: datetime, past: bool = False) -> datetime | None:
    found = re.match(_OFFSET, text.strip().lower())
    if not found or (found[1] == "-" and not past):
        return None
    unit = _OFFSET_UNITS.get((found[3] or "").removesuffix("s") if found[3] != "s" else "second")
    if unit is None:
        return None
    distance = timedelta(**{unit: int(found[2] or 0)})
    return now - distance if found[1] == "-" else now + distance


def _iso(text: str, now: datetime) -> datetime | None:
    if not re.match(r"\d{4}-\d\d?-\d", text.strip()):
        return None
    return datetime.fromisoformat(text.strip())


def deadline_us(text: str, now: datetime) -> int:
    """Of --deadline, in microseconds since the epoch.

    Raises:
        UsageError: it is no time, or has passed.
    """
    at_us = begin_us(text, now, "--deadline")
    if at_us <= round(now.timestamp() * 1_000_000):
        raise UsageError(
            f"--deadline is '{text}', which has passed.", "Name a later time.", Refusal.DEADLINE_PASSED
        )
    return at_us


def _spoken(text: str, now: datetime, past: bool = False) -> datetime | None:
    """A time of day, a day, or both in any order."""
    clock: tuple[int, int, int] | None = None
    day: datetime | None = None
    words = re.sub(r"\s+(?=[ap]m\b)", "", text.strip().lower()).replace("-", " ").split()
    if not 1 <= len(words) <= 2:
        return None
    for word in words:
        found_clock, found_day = _clock(word), _day(word, now, past)
        if found_clock is not None and clock is None and found_day is None:
            clock = found_clock
        elif found_day is not None and day is None:
            day = found_day
        else:
            return None
    hour, minute, second = clock or (0, 0, 0)
    when = (day or now).replace(hour=hour, minute=minute, second=second, microsecond=0)
    if day is None and when <= now and not past:
        when += timedelta(days=1)
    return when


def _clock(word: str) -> tuple[int, int, int] | None:
    if word in _DAY_TIMES:
        return _DAY_TIMES[word], 0, 0
    found = re.match(_CLOCK, word)
    if not found or not (found[2] or found[4]):
        return None
    hour = int(found[1])
    if found[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (found[4] == "pm")
    return hour, int(found[2] or 0), int(found[3] or 0)


def _day(word: str, now: datetime, past: bool) -> datetime | None:
    if word in _DAYS:
        return now + timedelta(days=_DAYS[word])
    found = re.match(_DATE, word) or re.match(_DIGITS, word)
    if not found:
        return None
    year = now.year if not found[3] else int(found[3]) + (2000 if len(found[3]) == 2 else 0)
    if past:  # a later month is last year's, a later day of this month is none of the past
        return now.replace(
            year=year - (not found[3] and int(found[1]) > now.month), month=int(found[1]), day=int(found[2])
        )
    day = now.replace(year=year, month=int(found[1]), day=int(found[2]))
    return day.replace(year=year + 1) if not found[3] and day.date() < now.date() else day
