"""Iteration reports become estimates: iterations still to make x their recent mean, now and then."""

from __future__ import annotations

from typing import Any

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Job
from rm.core.model.progress import Progress, attained_us, remaining_us
from rm.daemon.regulation.progress import EVERY_US, Awaited, ProgressWatch, awaited_of
from tests import builders
from tests.fakes import Inbox, ManualClock

SECOND_US = 1_000_000


class Watched:
    def __init__(self) -> None:
        self.clock, self.posted = ManualClock(100 * SECOND_US), Inbox()
        self.watch = ProgressWatch(self.posted, self.clock)
        self.watch.expect({1: Awaited(attempt=2, started_us=40 * SECOND_US, iterations=1_000)})

    def told(self, after_us: int = 0) -> list[tuple[Progress, ...]]:
        self.clock.us += after_us
        before = len(self.posted.items)
        self.watch.tell()
        return [e.progress for e in self.posted.items[before:] if isinstance(e, ev.JobsProgressed)]


def test_remaining_is_what_is_left_to_do_at_the_recent_pace() -> None:
    house = Watched()
    for number in range(100):
        house.watch.heard(1, 2, number, 900_000)
    assert house.told() == [(Progress(1, 2, 60 * SECOND_US, 900 * 900_000),)]
    for number in range(100, 120):  # it has become slower: the last twenty count
        house.watch.heard(1, 2, number, 2_000_000)
    assert house.told(EVERY_US) == [(Progress(1, 2, 65 * SECOND_US, 880 * 2_000_000),)]


def test_reports_are_gathered_to_one_event_every_few_seconds() -> None:
    house = Watched()
    house.watch.expect({j: Awaited(1, 0, 10) for j in (1, 2)})
    house.watch.heard(2, 1, 0, SECOND_US)
    house.watch.heard(1, 1, 0, SECOND_US)
    first = house.told()
    assert [[p.job for p in said] for said in first] == [[1, 2]]
    house.watch.heard(1, 1, 1, SECOND_US)
    assert house.told(EVERY_US - 1) == []
    assert [p.remaining_us for p in house.told(1)[0]] == [8 * SECOND_US]
    assert house.told(EVERY_US) == []  # nothing new


def test_more_iterations_than_promised_leave_nothing() -> None:
    house = Watched()
    house.watch.heard(1, 2, 1_500, SECOND_US)
    assert house.told()[0][0].remaining_us == 0


def test_who_is_watched_anew_from_outside_goes_on_where_it_was() -> None:
    house = Watched()
    for number in (*range(50), *range(10)):
        house.watch.heard(1, 2, number, SECOND_US)
    assert house.told()[0][0].remaining_us == 940 * SECOND_US


def test_jobs_that_nobody_awaits_and_old_attempts_are_not_told() -> None:
    house = Watched()
    house.watch.heard(7, 1, 3, SECOND_US)
    house.watch.heard(1, 1, 3, SECOND_US)
    assert house.told() == []
    house.watch.heard(1, 2, 3, SECOND_US)
    house.watch.expect({})
    assert house.told() == []


def running(**fields: Any) -> ClusterState:
    state = ClusterState()
    steps: list[ev.Event] = [
        ev.HostAdded(builders.host("a")),
        ev.JobSubmitted(1, builders.spec(**fields)),
        ev.JobPlaced(1, builders.placement("a")),
        ev.TasksStarted(1, 1, "a", 5, (0,)),
    ]
    for event in steps:
        apply(state, event, 5, Rules(), Changes())
    return state


def test_the_jobs_that_said_how_many_iterations_they_make() -> None:
    assert awaited_of(running(iterations=70)) == {1: Awaited(1, 5, 70)}
    assert awaited_of(running()) == {}


def test_the_state_keeps_what_was_told_of_the_current_attempt() -> None:
    state = running(expected_us=100)
    job: Job = state.jobs[1]

    def tell(*progress: Progress) -> None:
        apply(state, ev.JobsProgressed(progress), 9, Rules(), Changes())

    assert (remaining_us(job, None, 25), attained_us(job, None, 25)) == (80, 20)
    tell(Progress(1, 0, 3, 3), Progress(2, 1, 3, 3))
    assert state.progress == {}
    tell(Progress(1, 1, 20, 55))
    assert remaining_us(job, state.progress[1], 25) == 55
    apply(state, ev.TaskExited(1, 1, "a", 0, 0, 0, 5, 30), 30, Rules(), Changes())
    assert state.progress == {}


def test_what_is_left_stays_a_number_that_can_be_kept() -> None:
    house = Watched()
    house.watch.expect({1: Awaited(2, 0, 1 << 52)})
    house.watch.heard(1, 2, 0, 1 << 52)
    ((told,),) = house.told(EVERY_US)
    assert told.remaining_us == 1 << 53
