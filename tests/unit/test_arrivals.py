"""Jobs that came lately come again in plays of what is to come."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from rm.core.jobs import events as ev
from rm.core.model.job import Job, JobState
from rm.core.scheduling.arrivals import COMING_MAX, LEAST, Arrivals
from rm.core.scheduling.lengths import PLAYS
from tests import builders
from tests.unit.test_foreseen import foreseen
from tests.unit.test_host_reservations import SECOND, Reserving, limited


def came(number: int, at_us: int, ended_us: int | None = None, **more: object) -> Job:
    job = builders.job(number, **more)
    state = JobState.PENDING if ended_us is None else JobState.COMPLETED
    return replace(job, submitted_us=at_us, state=state, started_us=ended_us and at_us, ended_us=ended_us)


def test_they_come_as_often_as_they_came_and_in_each_play_from_another_point_on() -> None:
    jobs = [came(n, n * SECOND, n * SECOND) for n in range(1, 101)]
    known = Arrivals(jobs, 101 * SECOND)
    plays = [known.of(play) for play in range(PLAYS)]
    for play in plays:
        times = [at_us for at_us, _ in play]
        assert times == sorted(times)
        assert len(times) == 100
        assert {b - a for a, b in pairwise(times)} == {SECOND}
    assert len({play[0][1] is jobs[0].spec for play in plays}) == 1
    assert len({id(play[0][1]) for play in plays}) == PLAYS, "each begins with another job"


def test_before_the_first_end_that_is_known_some_may_be_forgotten() -> None:
    old = came(1, 0)
    jobs = [old, *(came(n, n * SECOND, (50 + n) * SECOND) for n in range(2, 90))]
    found = Arrivals(jobs, 100 * SECOND).of(0)
    assert len(found) == len([n for n in range(2, 90) if n >= 52])


def test_few_say_nothing_and_of_many_some_are_enough() -> None:
    assert not Arrivals([came(n, n * SECOND, n * SECOND) for n in range(1, LEAST)], 60 * SECOND)
    assert Arrivals([], 60 * SECOND).of(0) == []
    many = [came(n, SECOND + n, SECOND) for n in range(1, COMING_MAX + 100)]
    assert len(Arrivals(many, 60 * SECOND).of(3)) == COMING_MAX


def test_they_come_without_what_belonged_to_their_time() -> None:
    jobs = [
        came(n, n * SECOND, n * SECOND, dependency="afterok:1", begin_us=5, deadline_us=9, mail_events="END")
        for n in range(1, 20)
    ]
    cancelled = replace(came(30, 15 * SECOND), state=JobState.CANCELLED, ended_us=16 * SECOND)
    held = came(31, 15 * SECOND, hold=True)
    specs = [spec for _, spec in Arrivals([*jobs, cancelled, held], 20 * SECOND).of(0)]
    assert len(specs) == 19
    assert {(one.dependency, one.begin_us, one.deadline_us, one.mail_events) for one in specs} == {
        ("", None, None, "")
    }


def test_a_large_job_that_small_ones_pass_is_expected_later_than_without_them() -> None:
    """Under fifo whoever fits starts: small jobs that keep coming keep the large one waiting."""
    cluster = Reserving(hosts=1, cpus=2, queue="fifo")
    for number in range(30):
        job = cluster.state.jobs[cluster.submit("", **limited(30))]
        cluster.do(ev.TasksStarted(job.id, job.attempt, "h1", cluster.now_us, (0,)))
        cluster.now_us += 20 * SECOND
        if number > 0:
            cluster.end(cluster.state.jobs[job.id - 1])
    large = cluster.submit("", **limited(30, cpus_per_task=2))
    start = foreseen(cluster).starts[large]
    assert start.latest_us > start.at_us
    assert start.soonest_us <= start.likely_us <= start.latest_us
