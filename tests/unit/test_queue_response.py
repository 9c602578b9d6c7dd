"""response: service against response, who is believed what, and that nobody waits for ever."""

import random
from collections.abc import Iterable
from math import log
from typing import Any

import pytest

from rm.core.model.job import Job, JobState
from rm.core.registry import load
from tests.builders import job, placed, snapshot

HOUR_US = 3_600_000_000
NOW_US = 100 * HOUR_US


def order(
    *pending: Job,
    now_us: int = NOW_US,
    running: Iterable[Job] = (),
    others: Iterable[Job] = (),
    urgency: float = 3.5,
    **options: float,
) -> list[int]:
    policy = load("queue", "response", {"urgency": urgency, **options})
    jobs = [*pending, *running, *others]
    seen = snapshot(now_us=now_us, jobs=jobs, placed=[placed(one.id) for one in running])
    return [one.id for one in policy.order(pending, seen)]


def asks(number: int, hours: float, gpus: int = 1, waited: float = 0.0, **more: Any) -> Job:
    """It has waited for so many hours."""
    since_us = NOW_US - round(waited * HOUR_US)
    expected_us = round(hours * HOUR_US)
    return job(number, submitted_us=since_us, expected_us=expected_us, ntasks=gpus, gpus_per_task=1, **more)


def test_of_jobs_that_come_together_little_work_goes_first_and_the_longest_before_the_rather_long() -> None:
    together = [asks(1, 3), asks(2, 0.1), asks(3, 1), asks(4, 10), asks(5, 0.1, gpus=8)]
    assert order(*together) == [2, 4, 3, 5, 1]
    assert order(*together, urgency=0) == [2, 5, 3, 1, 4]


def test_who_has_waited_rises_by_the_logarithm_of_work() -> None:
    """e^3.5 is 33: what has waited as long as the longest runs goes before what has a 30th of its work."""
    longest = asks(9, 10, gpus=64)
    for work, first in ((30, [1, 2]), (36, [2, 1])):
        assert order(asks(1, 1, gpus=work, waited=10), asks(2, 1), longest)[:2] == first


def test_priority_decides_before_all() -> None:
    assert order(asks(1, 1, waited=50), asks(2, 10, priority=1), asks(3, 0.1, nice=1)) == [2, 1, 3]


def test_a_running_job_counts_as_the_longest() -> None:
    """Beside one of 1,000 h, ten hours of waiting are little."""
    waits, comes = asks(1, 2, waited=10), asks(2, 1)
    assert order(waits, comes) == [1, 2]
    assert order(waits, comes, running=[asks(3, 1000, state=JobState.RUNNING)]) == [2, 1]


def test_a_pass_of_some_orders_them_as_one_of_all() -> None:
    """What is held, or stands still, counts as the longest, too; what has ended does not."""
    waits, comes = asks(1, 2, waited=10), asks(2, 1)
    assert order(waits, comes, others=[asks(3, 1000, hold=True)]) == [2, 1]
    assert order(waits, comes, others=[asks(3, 1000, state=JobState.COMPLETED)]) == [1, 2]


def test_nobody_expects_more_than_the_time_limit() -> None:
    waits, comes = asks(1, 2, waited=10), asks(2, 1)
    assert order(waits, comes, others=[asks(3, 87_600)]) == [2, 1]
    assert order(waits, comes, others=[asks(3, 87_600, time_limit_us=10 * HOUR_US)]) == [1, 2]
    assert order(asks(1, 6), asks(2, 87_600, time_limit_us=5 * HOUR_US), asks(3, 10)) == [3, 1, 2]


def test_who_expects_years_makes_nobodys_waiting_count_for_nothing() -> None:
    waits, comes, years = asks(1, 100, gpus=64, waited=300), asks(2, 100), 24 * 365 * 10
    alone = order(waits, comes)
    assert alone == [1, 2]
    for other in (asks(3, years, hold=True), asks(3, years, state=JobState.RUNNING)):
        assert order(waits, comes, others=[other]) == alone
    unsaid = job(4, submitted_us=NOW_US, hold=True, time_limit_us=years * HOUR_US)
    silent = [job(n, submitted_us=NOW_US - w * HOUR_US, ntasks=g) for n, g, w in ((1, 64, 300), (2, 1, 0))]
    assert order(*silent, others=[unsaid]) == alone
    assert order(waits, comes, others=[asks(3, years, hold=True)], longest_days=30) == [2, 1]


def test_nobody_comes_forward_by_expecting_more_than_counts() -> None:
    """More than the longest that counts is more work, and no more response."""
    week, more = asks(1, 24 * 7), asks(2, 24 * 70)
    assert order(more, week) == [1, 2]
    assert order(more, week, longest_days=1000) == [2, 1]


def test_a_limit_is_no_promise_of_a_long_run_and_saying_nothing_no_gain() -> None:
    said, longest = asks(1, 2), asks(2, 10)
    limited = job(3, submitted_us=NOW_US, time_limit_us=10 * HOUR_US, gpus_per_task=1)
    silent = job(4, submitted_us=NOW_US, gpus_per_task=1)
    assert order(silent, limited, said, longest) == [2, 1, 3, 4]
    assert order(silent, said, longest, job(5, submitted_us=0, gpus_per_task=1))[0] == 5


def test_where_nobody_says_anything_the_first_submitted_goes_first() -> None:
    asked = ((1, 5, 1), (2, 4, 9), (3, 6, 1))
    some = [job(number, submitted_us=at, ntasks=gpus) for number, at, gpus in asked]
    assert order(*some) == [2, 1, 3]


def test_what_must_wait_has_a_reservation() -> None:
    policy = load("queue", "response", {"depth": 2})
    assert policy.depth == 2
    ends = job(1, expected_us=HOUR_US, state=JobState.PENDING)
    assert policy.end_us(ends, snapshot(now_us=NOW_US)) == NOW_US + HOUR_US


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_overtaken_for_ever(seed: int) -> None:
    """By one of equal length only within longest / urgency * ln(work / its work) of the own submission."""
    rng = random.Random(seed)
    longest = asks(1000, 10)
    some = [asks(n, 5, gpus=rng.choice((1, 2, 8, 64)), waited=rng.uniform(0, 40)) for n in range(1, 60)]
    listed = order(*some, longest)
    place = {number: at for at, number in enumerate(listed)}
    for earlier in some:
        for later in some:
            if earlier.submitted_us < later.submitted_us and place[later.id] < place[earlier.id]:
                bound_us = 10 * HOUR_US / 3.5 * log(earlier.spec.ntasks / later.spec.ntasks)
                assert later.submitted_us - earlier.submitted_us <= bound_us + 1
