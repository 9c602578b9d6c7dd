"""The orders of the queue policies that reckon with service."""

from dataclasses import replace

from rm.core.model.job import Job, JobState
from rm.core.registry import load
from tests.builders import job, snapshot

HOUR_US = 3_600_000_000


def order(policy: str, *pending: Job) -> list[int]:
    return [j.id for j in load("queue", policy).order(pending, snapshot(now_us=10 * HOUR_US))]


def test_niceness_lowers_a_job_in_the_queue_and_nothing_else() -> None:
    nice = job(1, priority=100, nice=60)
    assert order("priority", nice, job(2, priority=50), job(3, priority=40), job(4)) == [2, 1, 3, 4]
    assert nice.spec.is_high
    assert nice.demand == job(5, priority=100).demand


def test_srsf_serves_the_least_gpu_time_first_and_the_unknown_last() -> None:
    waiting = [
        job(1),  # nobody said
        job(2, ntasks=4, gpus_per_task=1, expected_us=HOUR_US),  # 4 GPU hours
        job(3, ntasks=1, gpus_per_task=1, expected_us=3 * HOUR_US),  # 3
        job(4, ntasks=1, gpus_per_task=2, time_limit_us=HOUR_US),  # 2, by its limit
        job(5, ntasks=1, gpus_per_task=1, expected_us=HOUR_US, time_limit_us=99 * HOUR_US),  # 1
        job(6, ntasks=3, expected_us=HOUR_US),  # 3: without GPUs its tasks count
        job(7),
    ]
    assert order("srsf", *waiting) == [5, 4, 3, 6, 2, 1, 7]


def test_srsf_ignores_what_a_lost_attempt_had_served() -> None:
    again = replace(job(1, gpus_per_task=1, expected_us=2 * HOUR_US), attempt=1, served_us=HOUR_US)
    assert order("srsf", again, job(2, gpus_per_task=1, expected_us=HOUR_US + 1)) == [2, 1]


def test_las_serves_those_first_that_have_had_least() -> None:
    had_much = replace(job(1, gpus_per_task=1), served_us=2 * HOUR_US)
    had_as_much = replace(job(2, gpus_per_task=2), served_us=HOUR_US)
    had_more = replace(job(3, gpus_per_task=4), served_us=HOUR_US)
    assert order("las", had_more, had_as_much, had_much, job(5), job(4)) == [4, 5, 1, 2, 3]
    running = replace(job(6, gpus_per_task=1), state=JobState.RUNNING, started_us=7 * HOUR_US)
    assert order("las", running, had_more) == [6, 3]  # three hours of one GPU, one of four
