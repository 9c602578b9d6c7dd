"""Cron expressions beside an account of cron(8): where any zone's clock is set, and a year at random."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, product
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rm.adapters.cron import trigger_of
from rm.core.monitoring.mesh import Cron

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
YEARS_DAYS = 3653
APART_DAYS = 5  # no zone sets its clock twice within them
HALF_AN_HOUR = ("Australia/LHI", "Australia/Lord_Howe")  # by as much their clocks are set
NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, NAMES), (0, 7, WEEKDAYS))


class Account:
    """What crontab(5) says of an expression, and cron(8) of clocks that are set."""

    def __init__(self, expression: str) -> None:
        texts = expression.split()
        self.sets = [self._set(text, *field) for text, field in zip(texts, FIELDS, strict=True)]
        if 7 in self.sets[4]:
            self.sets[4].add(0)
        self.both = texts[2].startswith("*") or texts[4].startswith("*")
        self.by_real_time = texts[0].startswith("*") or texts[1].startswith("*")

    @staticmethod
    def _set(text: str, least: int, most: int, names: tuple[str, ...]) -> set[int]:
        found: set[int] = set()
        for part in text.split(","):
            span, _, step = part.partition("/")
            ends = [
                names.index(w) + (names == NAMES) if w in names else int(w)
                for w in span.split("-")
                if w != "*"
            ]
            begin, end = (ends[0], ends[-1]) if ends else (least, most)
            found |= set(range(begin, end + 1, int(step or 1)))
        return found

    def matches(self, wall: datetime) -> bool:
        minutes, hours, days, months, weekdays = self.sets
        if wall.minute not in minutes or wall.hour not in hours or wall.month not in months:
            return False
        either = (wall.day in days, wall.isoweekday() % 7 in weekdays)
        return all(either) if self.both else any(either)

    def year(self, days: list[datetime], begin: datetime) -> Iterator[datetime]:
        """The runs from `begin` on where no clock is set, on these days."""
        hours, minutes = sorted(self.sets[1]), sorted(self.sets[0])
        for day in days:
            if day.replace(tzinfo=UTC) >= begin and self.matches(
                day.replace(hour=hours[0], minute=minutes[0])
            ):
                for hour, minute in product(hours, minutes):
                    yield day.replace(hour=hour, minute=minute, tzinfo=UTC)

    def runs(self, walls: list[tuple[datetime, datetime]]) -> list[datetime]:
        """The runs among the minutes, each an instant and the clock on the wall."""
        found = []
        seen = first = walls[0][1]  # how far the wall's clock has been looked at
        for at, wall in walls:
            if self.by_real_time:
                due = self.matches(wall)
            else:  # whatever minute of the wall is new, be it that the clock jumped over it
                count = (wall - seen) // MINUTE
                due = any(self.matches(seen + number * MINUTE) for number in range(1, count + 1))
                due = due or (wall == first and self.matches(wall))
                seen = max(seen, wall)
            if due:
                found.append(at)
        return found


def told(expression: str, zone: ZoneInfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    trigger, previous, now = trigger_of(Cron(expression), zone), None, begin
    while (previous := trigger.get_next_fire_time(previous, now)) is not None and previous < end:
        yield previous
        now = previous + timedelta(microseconds=1)


def minutes(zone: ZoneInfo, begin: datetime, count: int) -> list[tuple[datetime, datetime]]:
    instants = [begin + number * MINUTE for number in range(count)]
    return [(at, at.astimezone(zone).replace(tzinfo=None, fold=0)) for at in instants]


def test_a_run_is_not_told_again_in_its_own_microsecond() -> None:
    trigger = trigger_of(Cron("*/5 * * * *"), UTC)
    first = trigger.get_next_fire_time(None, datetime(2026, 3, 1, 12, 1, tzinfo=UTC))
    assert first == datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    assert trigger.get_next_fire_time(first, first) == first + 5 * MINUTE


@pytest.fixture(scope="module")
def transitions() -> list[tuple[ZoneInfo, list[tuple[datetime, datetime]]]]:
    """The 30 hours around each time of ten years at which a zone's clock is set: the instants, each with the
    clock on the wall. Of those that are set by as much at the same time of day there is one."""
    found: dict[tuple[object, ...], tuple[ZoneInfo, datetime]] = {}
    days = [FIRST + number * DAY for number in range(0, YEARS_DAYS, APART_DAYS)]
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        offsets = [day.astimezone(zone).utcoffset() for day in days]
        for day, (before, after) in zip(days, pairwise(offsets), strict=False):
            if before == after:
                continue
            low, high = 0, APART_DAYS * 24 * 60
            while high - low > 1:
                middle = (low + high) // 2
                changed = (day + middle * MINUTE).astimezone(zone).utcoffset() != before
                low, high = (low, middle) if changed else (middle, high)
            at = day + high * MINUTE
            found.setdefault((before, after, at.time()), (zone, at))
    assert len(found) > 40
    return [(zone, minutes(zone, at - 3 * HOUR, 30 * 60)) for zone, at in found.values()]


@pytest.mark.parametrize(
    "expression",
    [
        "*/5 * * * *", "0 * * * *", "*/20 1-3 * * *", "7 */2 * * *",  # they go on by real time
        "30 2 * * *", "0,30 0-3 * * *", "0 0 * * *", "0 3 1 * 1", "59 23 * * 6,0",
    ],
)  # fmt: skip
def test_runs_are_crons_where_a_clock_is_set(
    expression: str, transitions: list[tuple[ZoneInfo, list[tuple[datetime, datetime]]]]
) -> None:
    account = Account(expression)
    for zone, walls in transitions:
        found = list(told(expression, zone, walls[0][0], walls[-1][0] + MINUTE))
        if zone.key in HALF_AN_HOUR and expression == "7 */2 * * *":
            assert found == sorted(
                set(found)
            )  # of what goes on by real time, hours may be missed on that day
        else:
            assert found == account.runs(walls), zone


def expression_of(chance: random.Random) -> str:
    """One that somebody might write: values, names, ranges, steps and lists of them."""

    def part(least: int, most: int, names: tuple[str, ...]) -> str:
        low, high = sorted((chance.randint(least, most), chance.randint(least, most)))
        step = chance.choice(("", f"/{chance.randint(2, 9)}"))
        return chance.choice([f"{low}", f"{low}-{high}{step}", chance.choice(names or (f"{high}",))])

    def field(least: int, most: int, names: tuple[str, ...]) -> str:
        if chance.random() < 0.4:
            return chance.choice(("*", "*", f"*/{chance.randint(2, 9)}"))
        return ",".join(part(least, most, names) for _ in range(chance.randint(1, 3)))

    return " ".join(field(*one) for one in FIELDS)


def test_a_year_of_expressions_at_random() -> None:
    chance = random.Random(7)
    zone, runs = ZoneInfo("UTC"), 0
    days = [datetime(2026, 1, 1) + number * DAY for number in range(365)]
    for _ in range(60):
        account = Account(expression := expression_of(chance))
        begin = FIRST + chance.randrange(300) * DAY
        expected = islice(account.year(days, begin), 400)
        found = islice(told(expression, zone, begin, FIRST + 365 * DAY), 400)
        told_ones = list(found)
        assert told_ones == list(expected), expression
        runs += len(told_ones)
    assert runs > 5_000
