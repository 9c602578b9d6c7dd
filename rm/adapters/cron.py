"""Timers of the daemon: the one place that knows APScheduler."""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from tzlocal import get_localzone

from rm.core.mesh import Cron, Every, Schedule
from rm.errors import ConfigError

log = logging.getLogger(__name__)
logging.getLogger("apscheduler").setLevel(logging.WARNING)

# a star or a range, perhaps with a step; or a single value
PART = re.compile(r"(?:\*|\w+-\w+)(?:/\d+)?|\d+|[a-z]{3}", re.IGNORECASE)
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LOOKED = 12  # runs ahead that a cron expression's interval is taken from
FIRST_S = 10.0  # from the daemon's start to the first run of what follows an interval
FOLLOWERS = 16  # runs at the same time, at most
CLOCK_S = 1.0  # between two looks at the clock
REPEATED_MIN = 24 * 60  # a zone may go back by as much, when it crosses the date line
SET_BACK_S = 2.0  # from which on it was set back, and is not just made to go slower


class Timers:
    """Runs functions at their times in background threads; missed runs are made up for by one. When the
    clock is set back, every next run is planned anew: else all would wait until it is as late again."""

    def __init__(self, zone: tzinfo = UTC) -> None:
        self._zone = zone
        # what takes long must not keep the daemon's own timers waiting
        self._scheduler = BackgroundScheduler(
            timezone=zone,
            executors={"default": ThreadPoolExecutor(8), "followers": ThreadPoolExecutor(FOLLOWERS)},
        )
        self._triggers: dict[str, Callable[[], Any]] = {}  # makes a new one
        self._stopped = threading.Event()

    def every(self, seconds: float, name: str, work: Callable[[], object], jitter_s: float = 0) -> None:
        """Call `work` every so many seconds, never twice at once."""
        trigger = self._triggers[name] = partial(
            IntervalTrigger, seconds=seconds, jitter=jitter_s or None, timezone="UTC"
        )
        self._scheduler.add_job(
            work,
            trigger(),
            id=name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )

    def follow(
        self,
        name: str,
        schedule: Schedule,
        work: Callable[[], object],
        last_us: int = 0,
        jitter_us: int = 0,
        slip_us: int = 0,
        paused: bool = False,
    ) -> None:
        """Call `work` by the schedule, never twice at once, each time up to `jitter_us` late.

        `last_us` is when it last ran, perhaps in an earlier life of the daemon: what was missed since
        is made up for by one run, unless it is late by more than `slip_us` (0 = never too late).

        Raises:
            ConfigError: the cron expression says nothing.
        """
        jitter_s = jitter_us / 1e6
        now = datetime.now(self._zone)
        due = first_due(schedule, self._zone, now, last_us)
        if due is not None and due < now:
            late = not slip_us or now - due <= timedelta(microseconds=slip_us)
            due = now if late else trigger_of(schedule, self._zone).get_next_fire_time(None, now)
        if due is not None and jitter_s:
            due += timedelta(seconds=random.uniform(0, jitter_s))  # not all at once after a start
        trigger = self._triggers[name] = partial(trigger_of, schedule, self._zone, jitter_s)
        job = self._scheduler.add_job(
            work,
            trigger(),
            id=name,
            executor="followers",
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None if not slip_us else max(1, round(slip_us / 1e6)),
            next_run_time=due,
        )
        if paused:
            job.pause()

    def pause(self, name: str) -> None:
        self._scheduler.pause_job(name)

    def resume(self, name: str) -> None:
        self._scheduler.resume_job(name)

    def next_us(self, name: str) -> int | None:
        """When it is due; None = paused, never again, or unknown."""
        job = self._scheduler.get_job(name)
        due = getattr(job, "next_run_time", None)
        return None if due is None else int(due.timestamp() * 1e6)

    def start(self) -> None:
        self._scheduler.start()
        threading.Thread(target=self._watch, name="timers' clock", daemon=True).start()

    def _watch(self) -> None:
        ahead_s = _clock_s()
        while not self._stopped.wait(CLOCK_S):
            before_s, ahead_s = ahead_s, _clock_s()
            if ahead_s < before_s - SET_BACK_S:
                log.warning("the clock was set back by %.0f s", before_s - ahead_s)
                self._plan_anew()

    def _plan_anew(self) -> None:
        now = datetime.now(self._zone)
        for job in self._scheduler.get_jobs():
            changes: dict[str, Any] = {"trigger": self._triggers[job.id]()}
            if job.next_run_time is not None:  # not paused
                changes["next_run_time"] = changes["trigger"].get_next_fire_time(None, now)
            with suppress(JobLookupError):  # it ended meanwhile
                job.modify(**changes)

    def stop(self) -> None:
        self._stopped.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)


def _clock_s() -> float:
    """By how much the clock is ahead of one that is never set."""
    return datetime.now(UTC).timestamp() - time.monotonic()


def first_due(schedule: Schedule, zone: tzinfo, now: datetime, last_us: int) -> datetime | None:
    """The first run after `last_us`, which may be past; of what never ran: soon, or when cron says."""
    last = datetime.fromtimestamp(last_us / 1e6, zone)
    if not last_us or last > now:  # never, or before the clock went back
        if isinstance(schedule, Every):
            return now + timedelta(seconds=min(FIRST_S, schedule.interval_us / 1e6))
        last = now
    if isinstance(schedule, Every):
        return last + timedelta(microseconds=schedule.interval_us)
    found: datetime | None = trigger_of(schedule, zone).get_next_fire_time(
        last, last + timedelta(microseconds=1)
    )
    return found


def interval_us(schedule: Schedule, zone: tzinfo, now_us: int) -> int:
    """The longest time between two of the next runs.

    Raises:
        ConfigError: the cron expression says nothing, or names no time that comes.
    """
    if isinstance(schedule, Every):
        return schedule.interval_us
    trigger = trigger_of(schedule, zone)
    at = datetime.fromtimestamp(now_us / 1e6, zone)
    runs: list[datetime] = []
    while len(runs) < LOOKED:
        found = trigger.get_next_fire_time(runs[-1] if runs else None, at)
        if found is None:
            break
        runs.append(found)
        at = found + timedelta(microseconds=1)
    if len(runs) < 2:
        raise ConfigError(f"The cron expression '{schedule.expression}' names no time that comes again.")
    gaps = [b - a for a, b in pairwise(runs)]
    return int(max(gaps).total_seconds() * 1e6)


def trigger_of(schedule: Schedule, zone: tzinfo, jitter_s: float = 0) -> Any:
    """APScheduler's trigger; for cron with cron's meaning, which is not quite APScheduler's: Sunday is
    0 and 7, and of a day of the month and one of the week either suffices, unless one begins with a star."""
    if isinstance(schedule, Every):
        return Later(IntervalTrigger(seconds=schedule.interval_us / 1e6, timezone=zone), jitter_s)
    minute, hour, day, month, weekday = schedule.expression.split()
    _understood(schedule)
    if not day.startswith("*") and not weekday.startswith("*"):  # with a star both must hold
        either = [(day, "*"), ("*", _weekdays(weekday, schedule))]
    else:
        either = [(day, _weekdays(weekday, schedule))]
    try:
        triggers = [
            CronTrigger(minute=minute, hour=hour, day=d, month=month, day_of_week=w, second=0, timezone=zone)
            for d, w in either
        ]
    except ValueError as error:
        raise ConfigError(
            f"The cron expression '{schedule.expression}' cannot be read: {error}.",
            "Write minute hour day month weekday, such as '*/5 * * * *'.",
        ) from None
    return Later(OrTrigger(triggers), jitter_s)


def _understood(schedule: Cron) -> None:
    """APScheduler has words that cron has not, such as `last`; other crons have L, W and #."""
    for field in schedule.expression.split():
        for part in field.split(","):
            if not PART.fullmatch(part):
                raise ConfigError(
                    f"The cron expression '{schedule.expression}' has '{part}', which cron does not know.",
                    "Write numbers, names such as mon or jan, ranges, lists, and steps such as */5.",
                )


class Later(BaseTrigger):  # type: ignore[misc]
    """The times of another trigger, each up to `jitter_s` later. APScheduler's own jitter can make a run
    early, and then fires again for the same time."""

    def __init__(self, trigger: BaseTrigger, jitter_s: float) -> None:
        self._trigger = trigger
        self._jitter_s = jitter_s
        self._plain: datetime | None = None  # without the delay, which must not add up

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        last = (self._plain or previous) if previous is not None else None
        self._plain = self._trigger.get_next_fire_time(last, now)
        if last is not None and self._plain is not None and not _is_after(self._plain, last):
            self._plain = self._past_repeated_hour(last)
        if self._plain is None:
            return None
        # in UTC: two times of one zone are compared by their faces, and adding to one forgets its pass
        return self._plain.astimezone(UTC) + timedelta(seconds=random.uniform(0, self._jitter_s))

    def _past_repeated_hour(self, last: datetime) -> datetime | None:
        """The first time after `last` where the trigger answers none: APScheduler's cron takes the second
        pass of an hour that the clock goes through twice for the first one, for ever."""
        for minutes in range(1, REPEATED_MIN + 1):
            at = (last.astimezone(UTC) + timedelta(minutes=minutes)).astimezone(last.tzinfo)
            found: datetime | None = self._trigger.get_next_fire_time(None, at)
            if found is None or _is_after(found, last):
                return found
        return None


def _is_after(one: datetime, other: datetime) -> bool:
    """By the instant: two times of one zone are compared by their faces."""
    return one.timestamp() > other.timestamp()


def _weekdays(text: str, schedule: Cron) -> str:
    """Cron's weekdays as a list of APScheduler's names."""
    if text == "*":
        return text
    found: set[int] = set()
    try:
        for part in text.lower().split(","):
            span, _, step = part.partition("/")
            first, dash, last = span.partition("-")
            begin, end = (0, 6) if span == "*" else (_day(first), _day(last or first))
            if step and not dash and span != "*":
                end = 6
            if end < begin:
                raise ValueError(part)
            found |= {d % 7 for d in range(begin, end + 1, int(step or 1))}
    except ValueError:
        raise ConfigError(
            f"The cron expression '{schedule.expression}' has the weekday '{text}'.",
            "Write 0 to 7 (0 and 7 are Sunday), names such as mon, ranges and lists.",
        ) from None
    return ",".join(DAYS[d] for d in sorted(found))


def _day(text: str) -> int:
    day = DAYS.index(text) if text in DAYS else int(text)
    if not 0 <= day <= 7:
        raise ValueError(text)
    return day


def zone_of(name: str) -> tzinfo:
    """The time zone of this name; "" = this machine's.

    Raises:
        ConfigError: there is none.
    """
    try:
        return ZoneInfo(name) if name else get_localzone()
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"monitor.timezone is '{name}': {error}.", "Write a name such as Europe/Berlin, or UTC."
        ) from None
