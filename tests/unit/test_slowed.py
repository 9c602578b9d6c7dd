"""What the network costs jobs: the time by which their iterations take longer beside others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.model.network.alignment import LinkAlignment
from rm.core.model.network.slowed import (
    OTHERS_MOST,
    PERIODS_MOST,
    SOME,
    Slowed,
    lost_us,
    more_saved,
    with_more,
)
from rm.core.model.used import HostUsed, Used
from rm.core.sharing.ended import ended_parts
from rm.daemon.regulation.slowed import EVERY_US, TOLD_MOST, Neighbours, SlowedWatch
from rm.daemon.regulation.unmanaged import Without
from rm.web.callers.identity import Caller
from rm.web.callers.sight import Sight
from tests import builders
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.fakes import ManualClock
from tests.unit.test_job_arrays import Cluster

PERIOD_US = 100_000
SECOND_US = 1_000_000


def link(*jobs: int) -> LinkAlignment:
    return LinkAlignment("h1", 90.0, PERIOD_US, jobs)


class Watch:
    def __init__(self, *links: LinkAlignment) -> None:
        self.clock, self.posted = ManualClock(), []
        self.without: dict[int, Without] = {}
        self.watch = SlowedWatch(self.posted.append, self.clock, self.without.get)
        self.watch.see(links)

    def hear(self, job: int, *took_us: int, alone_us: int | None = PERIOD_US, paused_us: int = 0) -> None:
        """Iterations that took so long without their pauses."""
        for us in took_us:
            self.watch.heard(job, 1, us + paused_us, paused_us, alone_us)

    def told(self) -> dict[int, dict[int, int]]:
        """What was lost, after half a minute."""
        return {job: dict(one.by) for job, one in self.after().items()}

    def saved(self) -> dict[int, int]:
        """What was saved, after half a minute."""
        return {job: one.saved_us for job, one in self.after().items() if one.saved_us}

    def after(self) -> dict[int, Slowed]:
        self.clock.us += EVERY_US
        self.posted.clear()
        self.watch.tell()
        found: list[Any] = [event.slowed for event in self.posted]
        return {one.job: one for slowed in found for one in slowed}


def test_what_iterations_take_longer_beside_others_is_lost_to_them() -> None:
    watch = Watch(link(1, 2), link(1, 3), link(4))
    watch.hear(1, *[130_000] * 10)
    watch.hear(2, *[100_000] * 10)
    watch.hear(4, *[150_000] * 10)  # alone on its link: something else slows it down
    watch.hear(9, *[150_000] * 10)
    assert watch.told() == {1: {2: 150_000, 3: 150_000}}
    assert watch.told() == {}  # told once


def test_noise_cancels_out_and_nothing_is_won() -> None:
    watch = Watch(link(1, 2))
    watch.hear(1, *[90_000, 110_000] * 10)
    watch.hear(2, *[80_000] * 10)
    assert watch.told() == {}


def test_an_iteration_that_did_something_else_does_not_count() -> None:
    watch = Watch(link(1, 2))
    watch.hear(1, 120_000, (PERIODS_MOST + 1) * PERIOD_US, 120_000, 0, -5)
    assert watch.told() == {1: {2: 40_000}}


def test_without_a_profile_nothing_is_known() -> None:
    watch = Watch(link(1, 2))
    watch.hear(1, 200_000, alone_us=None)
    watch.hear(2, 200_000, alone_us=0)
    assert watch.told() == {}


def test_the_others_are_those_of_each_iteration() -> None:
    watch = Watch(link(1, 2))
    watch.hear(1, *[110_000] * 3)
    watch.watch.see([link(1, 3)])
    watch.hear(1, 110_000)
    assert watch.told() == {1: {2: 30_000, 3: 10_000}}


@given(st.lists(st.lists(st.sets(st.integers(1, 5), min_size=1), max_size=4), max_size=4), st.data())
def test_who_is_beside_whom_is_the_same_after_any_changes(
    plans: list[list[set[int]]], data: st.DataObject
) -> None:
    """Links of which nothing new is said are the very same as before, as in the alignments."""
    known: dict[tuple[int, ...], LinkAlignment] = {}
    followed = Neighbours()
    for plan in plans:
        links = [
            known.setdefault(jobs, link(*jobs)) for jobs in dict.fromkeys(tuple(sorted(p)) for p in plan)
        ]
        followed.see(links)
        for job in data.draw(st.lists(st.integers(1, 6))):  # the others are worked out after later plans
            shared = [set(one.jobs) for one in links if job in one.jobs and len(one.jobs) > 1]
            assert followed.of(job) == set().union(*shared)


def test_nothing_is_kept_of_jobs_that_are_alone() -> None:
    """A leader hears of them for months."""
    followed = Neighbours()
    followed.see([link(1, 2)])
    for job in range(3, 1_003):
        assert not followed.of(job)
    assert followed.of(1) == {1, 2}
    assert followed._found.keys() == {1}


def test_of_many_others_few_are_named_and_they_are_known_once_for_all() -> None:
    many = tuple(range(1, 501))
    others = Neighbours()
    others.see([link(*many), link(1, 900)])
    assert len({id(others.of(job)) for job in many}) == 2, "one set for each group of jobs on the same links"
    watch = Watch(link(*many), link(1, 900))
    watch.hear(1, *[150_000] * 40)
    watch.hear(2, *[150_000] * 40)
    told = watch.told()
    assert told.keys() == {1, 2}
    for job, by in told.items():
        assert len(by) == OTHERS_MOST + 1
        assert SOME in by
        assert job not in by
        assert sum(by.values()) == 40 * 50_000


def test_it_is_told_at_most_twice_a_minute() -> None:
    watch = Watch(link(1, 2))
    watch.hear(1, 150_000)
    watch.watch.tell()
    assert watch.posted == []


def test_what_iterations_would_take_unmanaged_and_did_not_is_saved() -> None:
    """The pauses in which a job kept its slot are part of what it took."""
    watch = Watch(link(1, 2), link(1, 3))
    watch.without.update({1: Without(PERIOD_US, 130_000), 2: Without(PERIOD_US, 130_000)})
    watch.hear(1, *[100_000] * 10)
    watch.hear(2, *[100_000] * 10, paused_us=10_000)
    watch.hear(3, *[100_000] * 10)  # in no rotation
    assert watch.saved() == {1: 300_000, 2: 200_000}
    assert watch.saved() == {}  # told once


def test_a_job_that_is_no_faster_than_unmanaged_saves_nothing() -> None:
    watch = Watch(link(1, 2))
    watch.without.update({1: Without(PERIOD_US, 130_000), 2: Without(PERIOD_US, 100_900)})
    watch.hear(1, *[120_000, 140_000] * 10)
    watch.hear(2, *[100_000] * 10)  # less than one hundredth is noise
    assert watch.saved() == {}


def test_a_job_that_is_faster_than_alone_saves_no_more_than_one_that_is_as_fast() -> None:
    """Its profile is too slow, and so is the estimate."""
    watch = Watch(link(1, 2))
    watch.without[1] = Without(PERIOD_US, 130_000)
    watch.hear(1, *[70_000] * 10)
    assert watch.saved() == {1: 300_000}


@given(st.integers(1, 2_000), st.integers(1, 4 * PERIOD_US), st.integers(PERIOD_US, 100 * PERIOD_US))
def test_saved_is_at_most_what_the_slowest_iterations_would_lose_in_the_time(
    count: int, took_us: int, unmanaged_us: int
) -> None:
    """Whatever a host reports."""
    watch = Watch(link(1, 2))
    watch.without[1] = Without(PERIOD_US, unmanaged_us)
    watch.hear(1, *[took_us] * count)
    assert 0 <= sum(watch.saved().values()) <= (PERIODS_MOST - 1) * EVERY_US


def test_many_attempts_are_told_a_number_of_them_at_a_time() -> None:
    jobs = range(1, TOLD_MOST + 3)
    watch = Watch(link(*jobs))
    for job in jobs:
        watch.hear(job, 150_000)
    assert len(watch.told()) == TOLD_MOST
    watch.posted.clear()
    watch.watch.tell()
    assert [len(event.slowed) for event in watch.posted] == [2]


lost = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10**9)), max_size=60)


@given(st.lists(st.integers(-10, 10**12)), st.integers(0, 10**10))
def test_saved_adds_up_to_at_most_three_times_what_the_job_ran(more: list[int], ran_us: int) -> None:
    known = 0
    for us in more:
        before, known = known, more_saved(known, us, ran_us)
        assert before <= known
    assert known == min(sum(max(0, us) for us in more), 3 * ran_us)


@given(lost, lost, st.integers(0, 10**10))
def test_added_up_it_is_never_more_than_the_time_and_names_few(
    first: list[tuple[int, int]], more: list[tuple[int, int]], most_us: int
) -> None:
    known = with_more((), first, most_us)
    both = with_more(known, more, most_us)
    assert lost_us(both) == min(most_us, lost_us(first) + lost_us(more))
    assert len(both) <= OTHERS_MOST + 1
    named = [us for job, us in both if job != SOME]
    assert named == sorted(named, reverse=True)
    assert len({job for job, _ in both}) == len(both)


def test_a_running_job_keeps_it_and_it_is_counted_at_its_end() -> None:
    cluster = Cluster()
    job = cluster.submit("")
    attempt = cluster.state.jobs[job].attempt
    cluster.do(ev.TasksStarted(job, attempt, "h1", cluster.now_us, (0,)))
    cluster.now_us += 60 * SECOND_US
    cluster.do(ev.JobsSlowed((Slowed(job, attempt, ((7, 2 * SECOND_US), (8, SECOND_US))),)))
    cluster.do(ev.JobsSlowed((Slowed(job, attempt, ((8, 4 * SECOND_US),), 3), Slowed(99, 1, ((1, 1),)))))
    cluster.do(ev.JobsSlowed((Slowed(job, attempt, (), 4),)))
    cluster.do(ev.JobsSlowed((Slowed(job, attempt + 1, ((8, SECOND_US),)),)))  # of another attempt
    assert cluster.state.jobs[job].slowed == ((8, 5 * SECOND_US), (7, 2 * SECOND_US))
    out = cluster.do(ev.TaskExited(job, attempt, "h1", 0, 0, 0, None, cluster.now_us))
    (part,) = out.changes.ended
    assert part.of_job.slowed_us == 7 * SECOND_US
    assert part.of_job.saved_us == 7


def test_a_job_loses_no_more_than_it_ran_whatever_its_host_reports() -> None:
    cluster = Cluster()
    job = cluster.submit("")
    attempt = cluster.state.jobs[job].attempt
    cluster.do(ev.TasksStarted(job, attempt, "h1", cluster.now_us, (0,)))
    started_us = cluster.state.jobs[job].started_us
    cluster.now_us += 60 * SECOND_US
    cluster.do(ev.JobsSlowed((Slowed(job, attempt, ((7, 1 << 60),), 1 << 60),)))
    now_us, found = cluster.now_us, cluster.state.jobs[job]
    assert started_us is not None
    assert now_us - started_us - SECOND_US <= lost_us(found.slowed) <= now_us - started_us
    assert found.saved_us == 3 * (now_us - started_us)
    assert ended_parts(found, {})


def test_show_says_beside_whom_a_job_was_slow(rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--wrap=true")
    daemon.service.put(1, slowed=((40, 120 * SECOND_US), (0, 72 * SECOND_US)))
    (line,) = [line for line in rmx("show", "1").out.splitlines() if line.startswith("Slowed:")]
    assert line.split(maxsplit=1)[1] == "3:12 beside others on its links: 2:00 job 40, 1:12 others"


def test_show_says_what_interleaving_saved(rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--wrap=true")
    assert "Saved:" not in rmx("show", "1").out
    daemon.service.put(1, saved_us=250 * SECOND_US)
    (line,) = [line for line in rmx("show", "1").out.splitlines() if line.startswith("Saved:")]
    assert line.split(maxsplit=1)[1] == "about 4:10 by interleaving, as estimated"


def test_jobs_that_may_not_be_known_have_no_name() -> None:
    job = replace(
        builders.job(1), slowed=((7, 5), (8, 4), (9, 3)), saved_us=6, used=(HostUsed("h1", -1, Used(1)),)
    )
    owner = Caller(1000, job.spec.user)
    seen = Sight(owner, own=(1, 8), jobs=True).job(job)
    assert (seen.slowed, seen.used) == (((8, 4), (SOME, 8)), job.used)
    assert Sight(owner).job(job) == job
    veiled = Sight(Caller(1001, "somebody")).job(job)
    assert (veiled.slowed, veiled.saved_us, veiled.used) == ((), 0, ())
