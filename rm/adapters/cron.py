"""Timers of the daemon: the one place that knows APScheduler and what cron means."""

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
from apscheduler.schedulers import SchedulerNotRunningError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger
from cronsim import CronSim, CronSimError
from tzlocal import get_localzone

from rm.core.monitoring.mesh import Cron, Every, Schedule
from rm.errors import ConfigError, RmError

log = logging.getLogger(__name__)
logging.getLogger("apscheduler").setLevel(logging.WARNING)
# it warns of each time at which a run still goes on: whose runs take longer says so in its own words
logging.getLogger("apscheduler.scheduler").setLevel(logging.ERROR)

# a star or a range, perhaps with a step; or a single value
PART = re.compile(r"(?:\*|\w+-\w+)(?:/\d+)?|\d+|[a-z]{3}", re.IGNORECASE)
ONE_VALUE = re.compile(r"\b(\w+)-\1/\d+")  # a range, which CronSim would take for 5/10: from 5 on
LOOKED = 12  # runs ahead that a cron expression's interval is taken from
FIRST_S = 10.0  # from the daemon's start to the first run of what follows an interval
FOLLOWERS = 16  # runs at the same time, at most
CLOCK_S = 1.0  # between two looks at the clock
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

    def every(
        self,
        seconds: float,
        name: str,
        work: Callable[[], object],
        jitter_s: float = 0,
        at_once: bool = False,
    ) -> None:
        """Call `work` at this interval, never twice at once; what fails is tried again the next time.
        `at_once`: for the first time when the timers start."""
        trigger = self._triggers[name] = partial(
            IntervalTrigger, seconds=seconds, jitter=jitter_s or None, timezone="UTC"
        )
        self._scheduler.add_job(
            partial(_guarded, name, work),
            trigger(),
            id=name,
            name=name,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
            **({"next_run_time": datetime.now(UTC)} if at_once else {}),
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

    def forget(self, name: str) -> None:
        """Nothing is called under this name any more; a call that is under way goes on."""
        with suppress(JobLookupError):
            self._scheduler.remove_job(name)
        self._triggers.pop(name, None)

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
        with suppress(SchedulerNotRunningError):
            self._scheduler.shutdown(wait=False)


def _guarded(name: str, work: Callable[[], object]) -> None:
    """What goes wrong is one sentence of the log: the database may be away, or the daemon stop."""
    try:
        work()
    except RmError as error:
        log.warning("%s: %s", name, error)
    except Exception:
        log.exception("%s: this is a defect of rm", name)


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


def windows_us(
    zone: tzinfo, expression: str, after_us: int, lasts_us: int, number: int
) -> list[tuple[int, int]]:
    """The next windows that begin at the times of a cron expression, at most `number` of them; microseconds
    since the epoch. One that lasts until the next begins, by the clock, does so where clocks change in it.

    Raises:
        ConfigError: the cron expression says nothing, or begins again before a window is over.
    """
    trigger = trigger_of(Cron(expression), zone)
    begins: list[datetime] = []
    previous = datetime.fromtimestamp(after_us / 1e6, zone)
    while len(begins) <= number:  # one more, before which the last one ends
        following = trigger.get_next_fire_time(previous, previous)
        if following is None:
            break
        begins.append(following.astimezone(zone))
        previous = following
    found: list[tuple[int, int]] = []
    for this, following in zip(begins[:number], [*begins[1:], None], strict=False):
        begins_us = _epoch_us(this)
        ends_us = begins_us + lasts_us
        if following is not None:
            next_us, lasts = _epoch_us(following), timedelta(microseconds=lasts_us)
            by_the_clock = following.replace(tzinfo=None) - this.replace(tzinfo=None)
            if ends_us > next_us and lasts > by_the_clock:
                raise ConfigError(
                    f"'{expression}' begins again before the reservation is over.", "Let it last shorter."
                )
            ends_us = next_us if lasts == by_the_clock else min(ends_us, next_us)
        found.append((begins_us, ends_us))
    return found


def _epoch_us(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def trigger_of(schedule: Schedule, zone: tzinfo, jitter_s: float = 0) -> Any:
    """APScheduler's trigger of a schedule; what a cron expression means is cron's to say, not APScheduler's.

    Raises:
        ConfigError: the cron expression says nothing.
    """
    if isinstance(schedule, Every):
        return Later(IntervalTrigger(seconds=schedule.interval_us / 1e6, timezone=zone), jitter_s)
    return Later(Wall(schedule, zone), jitter_s)


class Wall(BaseTrigger):  # type: ignore[misc]
    """The times of a cron expression by the clock on the wall, as Debian's cron keeps them: where the clock
    goes forward, what falls into the gap runs after it; where it goes back, a job whose minute and hour both
    begin without a star runs once, and any other one goes on by real time."""

    def __init__(self, schedule: Cron, zone: tzinfo) -> None:
        _understood(schedule)
        self._expression, self._zone = ONE_VALUE.sub(r"\1", schedule.expression), zone

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        tick = timedelta(microseconds=1)
        # in UTC: adding to a time of a zone forgets its pass
        start = now.astimezone(UTC)
        if previous is not None:
            last = previous.astimezone(UTC)
            # APScheduler may ask in the very microsecond of the last run: that one is not returned again
            start = last + tick if start == last else min(start, last + tick)
        before = (start - tick).astimezone(self._zone)
        for found in CronSim(self._expression, before):
            # a time in a repeated hour is also returned in its second pass, and of two in a gap each
            if found.astimezone(UTC) >= start:
                return found
        return None


def _understood(schedule: Cron) -> None:
    """Some crons have words that most have not, such as L, W and #."""
    for field in schedule.expression.split():
        for part in field.split(","):
            if not PART.fullmatch(part):
                raise ConfigError(
                    f"The cron expression '{schedule.expression}' has '{part}', which cron does not know.",
                    "Write numbers, names such as mon or jan, ranges, lists, and steps such as */5.",
                )
    try:
        CronSim(schedule.expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ConfigError(
            f"The cron expression '{schedule.expression}' cannot be read, or names no time that comes: "
            f"{error}.",
            "Write minute hour day month weekday, such as '*/5 * * * *'.",
        ) from None


class Later(BaseTrigger):  # type: ignore[misc]
    """The times of another trigger, each up to `jitter_s` later. APScheduler's own jitter can make a run
    early, and then fires again for the same time.

    APScheduler asks twice what follows a run: whether that is due as well, and when the next one is. Both get
    one answer, or every second run would be left out.
    """

    def __init__(self, trigger: BaseTrigger, jitter_s: float) -> None:
        self._trigger = trigger
        self._jitter_s = jitter_s
        self._asked: datetime | None = None  # what `_answer` follows
        self._answer: datetime | None = None
        self._plain: datetime | None = None  # `_answer` without the delay, which must not add up

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        if previous is not None and previous == self._asked:
            return self._answer
        last = self._plain if previous is not None and previous == self._answer else previous
        self._asked = previous
        self._plain = self._answer = self._trigger.get_next_fire_time(last, now)
        if self._plain is not None:
            # in UTC: two times of one zone are compared by their faces, and adding to one forgets its pass
            delay = timedelta(seconds=random.uniform(0, self._jitter_s))
            self._answer = self._plain.astimezone(UTC) + delay
        return self._answer


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
