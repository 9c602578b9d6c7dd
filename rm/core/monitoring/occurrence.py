"""When a maintenance window is open next: weekly ones come again."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from rm.core.monitoring.maintenance import Window

AHEAD_DAYS = 8


def occurrence(window: Window, now_us: int, zone: tzinfo) -> tuple[int, int] | None:
    """Begin and end, microseconds since the epoch, of the time that is or comes next; None = it is over."""
    if window.once is not None:
        first, last = (t if t.tzinfo else t.replace(tzinfo=zone) for t in window.once)
        ends_us = _us(last)
        return (_us(first), ends_us) if ends_us > now_us else None
    now = datetime.fromtimestamp(now_us / 1e6, zone)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    for days in range(-1, AHEAD_DAYS):
        day = midnight + timedelta(days=days)
        if day.weekday() not in window.days:
            continue
        begins = _at(day, window.begins)
        over_midnight = window.ends <= window.begins
        ends = _at(day + timedelta(days=1) if over_midnight else day, window.ends)
        if _us(ends) > now_us:
            return _us(begins), _us(ends)
    return None


def _at(midnight: datetime, minute: int) -> datetime:
    """That minute of the day, by the clock on the wall."""
    day = midnight + timedelta(days=minute // (24 * 60))  # 24:00 is the next day
    return day.replace(hour=minute // 60 % 24, minute=minute % 60)


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)
