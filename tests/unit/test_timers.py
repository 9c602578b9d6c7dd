"""Schedules: cron's meaning, and what is made up for after the daemon was away."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import apscheduler.schedulers.base
import apscheduler.triggers.interval
import pytest

from rm.adapters import cron
from rm.adapters.cron import Timers, first_due, interval_us, trigger_of, zone_of
from rm.core.monitoring.mesh import Cron, Every
from rm.errors import ConfigError, StoreUnavailable
from tests.fakes import PATIENCE_S

SATURDAY = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000


def us(at: datetime) -> int:
    return int(at.timestamp() * 1e6)


def runs(expression: str, count: int, jitter_s: float = 0.0) -> Iterator[str]:
    trigger, previous, now = trigger_of(Cron(expression), UTC, jitter_s), None, SATURDAY
    for _ in range(count):
        previous = trigger.get_next_fire_time(previous, now)
        now = previous + timedelta(microseconds=1)
        yield previous.strftime("%a %d %H:%M")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["Sat 21 12:20", "Sat 21 12:40", "Sat 21 13:00"]),
        ("0 2 * * 0", ["Sun 22 02:00", "Sun 29 02:00", "Sun 06 02:00"]),
        ("0 2 * * 7", ["Sun 22 02:00", "Sun 29 02:00", "Sun 06 02:00"]),
        ("30 4 * * 1-2", ["Mon 23 04:30", "Tue 24 04:30", "Mon 30 04:30"]),
        ("30 4 * * Fri,0", ["Sun 22 04:30", "Fri 27 04:30", "Sun 29 04:30"]),
        ("0 0 * * */3", ["Sun 22 00:00", "Wed 25 00:00", "Sat 28 00:00"]),
        ("0 0 * * 5-7", ["Sun 22 00:00", "Fri 27 00:00", "Sat 28 00:00"]),
        ("0 0 */2 * 1", ["Mon 23 00:00", "Mon 07 00:00", "Mon 21 00:00"]),  # with a star both must hold
        ("0 2 1 * 1", ["Mon 23 02:00", "Mon 30 02:00", "Tue 01 02:00"]),  # either day suffices
    ],
)
def test_cron_expressions_mean_what_cron_means(expression: str, expected: list[str]) -> None:
    assert list(runs(expression, 3)) == expected


def test_jitter_delays_a_run_and_never_doubles_it() -> None:
    assert list(runs("*/20 * * * *", 4, jitter_s=50.0)) == [
        "Sat 21 12:20",
        "Sat 21 12:40",
        "Sat 21 13:00",
        "Sat 21 13:20",
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "61 * * * *",
        "* * * * 8",
        "* * * * x",
        "a * * * *",
        "* * * * 5-2",
        "0 0 L * *",
        "0 0 last * *",
        "0 0 * * 1#2",
        "0 0 2nd * *",
        "0 0 15W * *",
    ],
)
def test_what_cron_would_not_take(expression: str) -> None:
    with pytest.raises(ConfigError, match=f"'{expression}'".replace("*", r"\*")):
        trigger_of(Cron(expression), UTC)


def test_the_interval_of_a_schedule() -> None:
    assert interval_us(Every(5), UTC, us(SATURDAY)) == 5
    assert interval_us(Cron("0 * * * *"), UTC, us(SATURDAY)) == HOUR_US
    assert interval_us(Cron("0 9 * * 1-5"), UTC, us(SATURDAY)) == 3 * DAY_US  # over the weekend
    with pytest.raises(ConfigError, match="no time that comes"):
        interval_us(Cron("0 0 31 2 *"), UTC, us(SATURDAY))


def test_when_a_schedule_is_due_next() -> None:
    def due(schedule: Every | Cron, last: timedelta | None) -> timedelta:
        last_us = 0 if last is None else us(SATURDAY + last)
        found = first_due(schedule, UTC, SATURDAY, last_us)
        assert found is not None
        return found - SATURDAY

    minute = Every(60_000_000)
    assert due(minute, None) == timedelta(seconds=10)  # never ran: soon
    assert due(minute, timedelta(seconds=-15)) == timedelta(seconds=45)
    assert due(minute, timedelta(hours=-5)) == timedelta(hours=-5, minutes=1)  # missed
    assert due(minute, timedelta(hours=5)) == timedelta(seconds=10)  # the clock went back
    assert due(Cron("0 * * * *"), None) == timedelta(minutes=59, seconds=30)
    assert due(Cron("0 * * * *"), timedelta(hours=-3)) < timedelta(0)


def test_zones() -> None:
    assert zone_of("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert zone_of("") is not None
    with pytest.raises(ConfigError, match=r"monitor.timezone is 'Mars/Base'"):
        zone_of("Mars/Base")


def test_what_was_missed_is_made_up_for_once_unless_it_slipped_or_is_paused() -> None:
    timers = Timers(UTC)
    ran = {name: threading.Event() for name in ("late", "slipped", "paused", "resumed")}
    long_ago_us = time.time_ns() // 1000 - 10 * HOUR_US
    hour = Every(HOUR_US)
    timers.follow("late", hour, ran["late"].set, long_ago_us)
    timers.follow("slipped", hour, ran["slipped"].set, long_ago_us, slip_us=HOUR_US)
    timers.follow("paused", hour, ran["paused"].set, long_ago_us, paused=True)
    timers.start()
    try:
        assert ran["late"].wait(PATIENCE_S)
        assert timers.next_us("paused") is None
        for name in ("late", "slipped"):  # both by their schedule from now on
            due_us = timers.next_us(name)
            assert due_us is not None
            assert due_us > time.time_ns() // 1000 + HOUR_US // 2
        assert timers.next_us("nobody") is None
        timers.resume("paused")
        assert timers.next_us("paused") is not None
        timers.pause("late")
        assert timers.next_us("late") is None
        assert not ran["slipped"].is_set()
    finally:
        timers.stop()


@pytest.mark.parametrize("schedule", [Every(HOUR_US), Cron("0 * * * *")], ids=["interval", "cron"])
@pytest.mark.parametrize("jitter_us", [0, 1_000])
def test_no_run_of_a_schedule_is_left_out(schedule: Every | Cron, jitter_us: int) -> None:
    timers = Timers(UTC)
    ran = threading.Event()
    timers.follow("hourly", schedule, ran.set, time.time_ns() // 1000 - 10 * HOUR_US, jitter_us)
    timers.start()
    try:
        assert ran.wait(PATIENCE_S)
        due_us = timers.next_us("hourly")
        assert due_us is not None
        assert due_us <= time.time_ns() // 1000 + HOUR_US + jitter_us
    finally:
        timers.stop()


def test_work_that_fails_is_a_sentence_of_the_log_and_done_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers, done = Timers(UTC), threading.Event()
    failures: list[Exception] = [StoreUnavailable("The database is away."), KeyError("a defect")]

    def work() -> None:
        if failures:
            raise failures.pop(0)
        done.set()

    timers.every(0.01, "look for crumbs", work)
    timers.start()
    try:
        assert done.wait(PATIENCE_S)
    finally:
        timers.stop()
    away, defect = (record for record in caplog.records if record.name == cron.__name__)
    assert (away.getMessage(), away.exc_info) == ("look for crumbs: The database is away.", None)
    assert defect.getMessage() == "look for crumbs: this is a defect of rm"


def test_a_run_that_outlasts_its_interval_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    timers, began, over, ticks = Timers(), threading.Event(), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        began.set()
        over.wait(PATIENCE_S)

    timers.follow("slow", Every(20_000), work)
    timers.start()
    try:
        assert began.wait(PATIENCE_S)
        timers.follow("beside", Every(20_000), ticks.release)
        for _ in range(10):  # "slow" was due as often
            assert ticks.acquire(timeout=PATIENCE_S)
    finally:
        over.set()
        timers.stop()
    assert caplog.text == ""


def test_a_clock_that_is_set_back_keeps_nothing_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    back = [timedelta()]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return super().now(tz) - back[0]

    for module in (cron, apscheduler.schedulers.base, apscheduler.triggers.interval):
        monkeypatch.setattr(module, "datetime", Clock)
    timers = Timers(UTC)
    own, mesh = threading.Semaphore(0), threading.Semaphore(0)
    timers.every(0.05, "own", own.release)
    timers.follow("mesh", Every(100_000), mesh.release)
    timers.follow("paused", Every(1_000_000), mesh.release, paused=True)
    timers.start()
    try:
        assert own.acquire(timeout=PATIENCE_S)
        assert mesh.acquire(timeout=PATIENCE_S)
        back[0] = timedelta(hours=1)
        for work in (own, mesh):
            while work.acquire(blocking=False):
                pass
            for _ in range(5):  # some may have been due already
                assert work.acquire(timeout=PATIENCE_S)
        assert timers.next_us("paused") is None
        timers.resume("paused")
        due_us = timers.next_us("paused")
        assert due_us is not None
        assert due_us < us(Clock.now(UTC)) + HOUR_US // 2
    finally:
        timers.stop()
