"""What clocks say of jobs: no negative durations, and nothing in the future."""

import pytest

from rm.core.jobs import events as ev
from tests.unit.test_lifecycle import ALONE, S, World


def test_a_clock_that_is_set_back_makes_no_negative_durations() -> None:
    world = World(ALONE).run()  # started at 200
    world.now_us = 150
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 200, 150))
    (task,) = world.job.tasks
    assert (task.started_us, task.ended_us, world.job.ended_us) == (200, 200, 200)


@pytest.mark.parametrize("ended_us", [150, 360_000_000, 3_600_000_000])
def test_a_task_ran_as_long_as_its_host_measured_however_its_clock_was_set(ended_us: int) -> None:
    world = World(ALONE).run()  # started at 200
    world.now_us = 5_000_000
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 200, ended_us, ran_us=4_000_000))
    assert world.job.tasks[0].ended_us == 4_000_200
    assert world.job.ended_us == 4_000_200


def test_a_job_ended_with_its_last_task_however_late_the_daemon_hears_of_it() -> None:
    world = World().run()  # started at 200
    world.now_us = 600_000_000  # the daemon was away
    for rank, host, ended_us in ((2, "h2", 900), (0, "h1", 400), (1, "h1", 300)):
        world.do(ev.TaskExited(1, 1, host, rank, 0, 0, 200, ended_us))
    assert (world.job.state, world.job.started_us, world.job.ended_us) == (S.COMPLETED, 200, 900)


def test_no_host_says_that_a_job_ends_in_the_future() -> None:
    world = World(ALONE).run()
    world.now_us = 1_000
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 200, 1 << 50))
    assert world.job.ended_us == 1_000


def test_no_host_says_that_a_task_ran_into_the_future() -> None:
    world = World(ALONE).run()
    world.now_us = 1_000
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 200, 300, ran_us=1 << 50))
    assert world.job.tasks[0].ended_us == 1_000


@pytest.mark.parametrize("ran_us", [None, 0, 1 << 50])
def test_no_host_says_that_a_task_began_or_ended_before_it_was_placed(ran_us: int | None) -> None:
    """Its account would have used what nobody had, or its end would be in no report."""
    told = World(ALONE)
    told.now_us = 1_000
    told.place()
    told.now_us = 2_000
    told.do(ev.TasksStarted(1, 1, "h1", -(1 << 53), (0,)))
    assert (told.job.started_us, told.job.tasks[0].started_us) == (1_000, 1_000)
    told.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, -(1 << 53), -(1 << 53), ran_us=ran_us))
    assert told.job.ended_us == told.job.tasks[0].ended_us == (2_000 if ran_us else 1_000)
    untold = World(ALONE)
    untold.now_us = 1_000
    untold.place()
    untold.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 0, 0, ran_us=ran_us))
    assert (untold.job.started_us, untold.job.tasks[0].ended_us) == (1_000, 1_000)


def test_a_clock_that_is_set_moves_when_an_attempt_was_placed() -> None:
    world = World(ALONE)
    world.now_us = 10_000
    world.place()
    world.now_us = 500
    world.do(ev.ClockStepped(-9_500))
    world.now_us = 700
    world.do(ev.TasksStarted(1, 1, "h1", 600, (0,)))
    assert world.job.started_us == 600
