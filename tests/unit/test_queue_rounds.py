"""themis and goodput: whom finish-time fairness and goodput prefer."""

from dataclasses import replace

from rm.core.model.job import Job
from rm.core.registry import load
from tests.builders import job, profile, snapshot

MINUTE_US = 60_000_000


def order(policy: str, *pending: Job) -> list[int]:
    return [j.id for j in load("queue", policy).order(pending, snapshot(now_us=60 * MINUTE_US))]


def test_themis_serves_those_first_that_waiting_has_slowed_most() -> None:
    at = 30 * MINUTE_US
    short = job(1, submitted_us=at, expected_us=10 * MINUTE_US)  # (30 + 10) / 10
    long = job(2, submitted_us=at, expected_us=100 * MINUTE_US)  # (30 + 100) / 100
    old = job(3, submitted_us=0, expected_us=100 * MINUTE_US)  # (60 + 100) / 100
    unknown = job(4, submitted_us=0)
    assert order("themis", unknown, long, old, short) == [1, 3, 2, 4]


def test_themis_counts_what_a_job_has_been_served() -> None:
    """Of two jobs of one age the one that ran meanwhile is less behind."""
    waited = job(1, submitted_us=0, expected_us=100 * MINUTE_US)
    ran = replace(job(2, submitted_us=0, expected_us=100 * MINUTE_US), served_us=50 * MINUTE_US)
    assert order("themis", ran, waited) == [1, 2]
    assert order("themis", job(3, submitted_us=0, expected_us=1), waited) == [3, 1]


def test_goodput_serves_those_first_whose_gpus_wait_least() -> None:
    loud = job(1, ntasks=4, traffic=profile(200, (0, 120, 900)))
    quiet = job(2, ntasks=4, traffic=profile(200, (0, 20, 900)))
    alone = job(3, traffic=profile(200, (0, 120, 900)))
    unknown = job(4, ntasks=4)
    assert order("goodput", loud, quiet, alone, unknown) == [3, 4, 2, 1]
