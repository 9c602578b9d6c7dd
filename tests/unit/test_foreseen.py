"""When pending jobs are expected to start: what is foreseen comes to pass when jobs run for their time."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.dependency import Standing
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.scheduling import foreseen as foreseeing
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.foreseen import SLICE_STEPS, Foreseen, Playing, copied, foresee
from rm.core.scheduling.lengths import PLAYS, Lengths
from rm.core.sharing.accounts import Accounts, Qos
from tests import builders
from tests.examples import examples
from tests.unit.test_host_reservations import SECOND, Reserving, limited


def foreseen(cluster: Reserving, **new: Any) -> Foreseen:
    cycle, before = cluster.cycle, deepcopy(cluster.state)
    found = foresee(
        copied(cluster.state), cycle.policies, cycle.rules, cycle.tuning, cluster.now_us,
        builders.spec(**new) if new else None,
    )  # fmt: skip
    assert cluster.state == before, "it is another state that is played"
    return found


def test_the_state_that_is_played_has_nothing_that_changes_in_common_with_the_leaders() -> None:
    cluster = Reserving(cpus=1)
    for _ in range(3):
        first = cluster.submit("", account="physics", **limited(10))
        cluster.submit("", account="physics", dependency=f"afterok:{first}", **limited(10))
    state, own = cluster.state, copied(cluster.state)
    for field in fields(ClusterState):
        mine, theirs = getattr(own, field.name), getattr(state, field.name)
        fixed = is_dataclass(theirs) and theirs.__dataclass_params__.frozen
        assert mine is not theirs or fixed or isinstance(theirs, int | tuple | None), field.name
        if isinstance(theirs, dict):
            both = [(mine[key], one) for key, one in theirs.items() if isinstance(one, dict | set | list)]
            assert all(copy is not one and copy == one for copy, one in both), field.name
    foreseen(cluster)


def test_slices_of_a_play_are_of_few_steps_and_foresee_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Reserving(cpus=1)
    for seconds in range(1, 41):
        cluster.submit("", **limited(seconds))
    cycle, steps, step = cluster.cycle, list[int](), Cycle.step
    at_once = foreseen(cluster)
    monkeypatch.setattr(Cycle, "step", lambda *args: steps.append(1) or step(*args))
    playing = Playing(copied(cluster.state), cycle.policies, cycle.rules, cycle.tuning, cluster.now_us)
    assert not steps
    most, slices, over = 0, 0, False
    while not over:
        steps.clear()
        over, slices = playing.go_on(), slices + 1
        most = max(most, len(steps))
    assert (most, playing.found()) == (SLICE_STEPS, at_once)
    assert slices > 3


def test_jobs_start_one_after_the_other() -> None:
    cluster = Reserving(cpus=1)
    first, second, third = (cluster.submit("", **limited(s)) for s in (100, 50, 20))
    placed_us = cluster.state.jobs[first].history[-1][0]
    found = foreseen(cluster)
    assert found.until_us is None
    assert {job: start.hosts for job, start in found.starts.items()} == {second: ("h1",), third: ("h1",)}
    assert abs(found.starts[second].at_us - placed_us - 100 * SECOND) < SECOND
    assert abs(found.starts[third].at_us - placed_us - 150 * SECOND) < SECOND
    assert abs(foreseen(cluster, **limited(9)).starts[0].at_us - placed_us - 170 * SECOND) < SECOND


def test_nobody_knows_what_comes_after_a_job_without_a_time_limit() -> None:
    cluster = Reserving(cpus=1)
    endless, waits = cluster.submit(""), cluster.submit("")
    held = cluster.submit("", hold=True)
    after = cluster.submit("", dependency=f"afterok:{held}")
    found, jobs = foreseen(cluster), cluster.state.jobs
    assert found == Foreseen({}, None, endless=True, dry=True)
    assert endless != waits
    why = "No start can be foreseen:"
    assert [found.no_start(jobs[job]) for job in (waits, held, after)] == [
        f"{why} jobs without a time limit hold hosts, and nobody knows when they end.",
        f"{why} it is held.",
        f"{why} it waits for other jobs.",
    ]
    lost = replace(
        jobs[after], dependencies=(replace(jobs[after].dependencies[0], standing=Standing.FAILED),)
    )
    assert found.no_start(lost) == f"{why} its dependencies can never be fulfilled."


def test_why_nothing_is_known_of_a_start() -> None:
    cluster = Reserving(cpus=1)
    cluster.submit("", **limited(100))
    cluster.submit("", hold=True)
    found, job = foreseen(cluster), Job(0, builders.spec(), 0)
    assert not found.endless, "the job that runs has an end; nobody knows when the other is released"
    assert found.no_start(job).startswith("No start can be foreseen: no end of a job")
    far = Foreseen({}, 90 * SECOND)
    assert far.no_start(job).startswith("It starts after 1970-01-01 00:01:30 UTC: ")


@pytest.mark.parametrize("ends", [True, False])
def test_of_the_jobs_behind_the_head_of_the_queue_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(foreseeing, "WAITING_MAX", 1)
    cluster = Reserving(cpus=1)
    cluster.submit("", **(limited(100) if ends else {}))
    first, behind = cluster.submit("", **limited(50)), cluster.submit("", **limited(1))
    found, jobs = foreseen(cluster), cluster.state.jobs
    assert (first in found.starts, behind in found.starts) == (ends, False)
    assert found.until_us is not None
    assert found.no_start(jobs[behind]).endswith("the first 1 jobs of the queue, which are foreseen.")
    if not ends:
        assert "jobs without a time limit" in found.no_start(jobs[first])


def test_a_job_that_is_being_stopped_ends_after_its_grace_whatever_its_time_limit() -> None:
    cluster = Reserving(cpus=1)
    low = Qos("batch", grace_s=60.0)
    cluster.do(ev.AccountsSet(Accounts(qos=(low, Qos("urgent", preempts=("batch",)))), "root"))
    cluster.submit("", qos="batch")
    urgent = cluster.submit("", qos="urgent", **limited(10))
    (stopped,) = (job for job in cluster.state.jobs.values() if job.state is JobState.COMPLETING)
    assert (stopped.preempted_by, stopped.allowed_us) == (urgent, None)
    for later_s, left_s in ((0, 60), (20, 40), (70, 0)):
        cluster.now_us = stopped.touched_us + later_s * SECOND
        assert foreseen(cluster).starts[urgent].at_us == max(
            cluster.now_us + 1, cluster.now_us + left_s * SECOND
        )
    other = Reserving(cpus=1)
    endless, waits = other.submit(""), other.submit("", **limited(10))
    other.do(ev.CancelRequested(endless, "ann"))
    assert foreseen(other).starts[waits].at_us == other.now_us + other.cycle.rules.grace_us


def test_held_jobs_and_begin_times() -> None:
    cluster = Reserving(cpus=8)
    held = cluster.submit("", hold=True)
    later = cluster.submit("", begin_us=90 * SECOND)
    found = foreseen(cluster).starts
    assert held not in found
    assert found[later].at_us == 90 * SECOND


def twelve_ended_sooner() -> Reserving:
    """One processor, on which each of twelve jobs took a fifth of its time limit."""
    cluster = Reserving(cpus=1)
    for _ in range(12):
        job = cluster.state.jobs[cluster.submit("", **limited(100))]
        cluster.do(ev.TasksStarted(job.id, job.attempt, "h1", cluster.now_us, (0,)))
        cluster.now_us += 20 * SECOND
        cluster.end(cluster.state.jobs[job.id])
    return cluster


def test_it_may_be_sooner_as_jobs_have_ended_sooner() -> None:
    cluster = twelve_ended_sooner()
    cluster.submit("", **limited(100))
    waits = cluster.submit("", **limited(100))
    start = foreseen(cluster).starts[waits]
    assert start.at_us - cluster.now_us == pytest.approx(100 * SECOND, rel=0.01)
    assert start.soonest_us - cluster.now_us == pytest.approx(20 * SECOND, rel=0.02)
    assert start.likely_us == start.soonest_us
    assert start.latest_us <= start.at_us  # none of twelve took longer, which the next may


def test_a_play_that_is_left_says_what_is_known_by_then() -> None:
    """First when jobs start at the latest, in the order of their starts; then how much sooner it may be."""
    cluster = twelve_ended_sooner()
    cluster.submit("", **limited(100))
    waiting = [cluster.submit("", **limited(100)) for _ in range(6)]
    cycle, jobs = cluster.cycle, cluster.state.jobs
    playing = Playing(copied(cluster.state), cycle.policies, cycle.rules, cycle.tuning, cluster.now_us)
    whole, told = foreseen(cluster), list[Foreseen]()
    over = False
    while not over:
        over = playing.go_on(1)
        told.append(playing.found())
    assert told[-1] == whole
    counts = [len(found.starts) for found in told]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 6)
    part = next(found for found in told if len(found.starts) == 3)
    assert part.no_start(jobs[waiting[5]]).startswith("It starts after ")
    sooner = [
        [found.starts[j].soonest_us < found.starts[j].at_us for j in waiting]
        for found in told[-200:]
        if len(found.starts) == 6
    ]
    assert [False] * 6 in sooner
    assert any(one[0] and not one[-1] for one in sooner), "all plays have come as far when they are left"
    assert all(found.starts[j].at_us == whole.starts[j].at_us for found in told for j in found.starts)


def test_it_lies_between_what_the_jobs_before_it_took() -> None:
    cluster = Reserving(cpus=1)
    for number in range(12):
        job = cluster.state.jobs[cluster.submit("", **limited(100))]
        cluster.do(ev.TasksStarted(job.id, job.attempt, "h1", cluster.now_us, (0,)))
        cluster.now_us += (10 if number < 5 else 60) * SECOND
        cluster.end(cluster.state.jobs[job.id])
    cluster.submit("", **limited(100))
    waits = cluster.submit("", **limited(100))
    start = foreseen(cluster).starts[waits]
    times = (start.soonest_us, start.likely_us, start.latest_us, start.at_us)
    soonest_s, likely_s, latest_s, at_s = ((at_us - cluster.now_us) / SECOND for at_us in times)
    assert 0 < soonest_s <= 10.2
    assert 9.8 <= likely_s <= 61.2
    assert 58.8 <= latest_s <= at_s == pytest.approx(100, rel=0.02)


def test_the_latest_time_leaves_room_for_jobs_that_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Reserving(cpus=1)
    for number in range(12):
        job = cluster.state.jobs[cluster.submit("", **limited(100))]
        cluster.do(ev.TasksStarted(job.id, job.attempt, "h1", cluster.now_us, (0,)))
        cluster.now_us += (40 + number) * SECOND
        cluster.end(cluster.state.jobs[job.id])
    cluster.submit("", **limited(100))
    waits = cluster.submit("", **limited(100))
    wide = foreseen(cluster).starts[waits]
    monkeypatch.setattr("rm.core.scheduling.foreseen.WIDER", 1.0)
    monkeypatch.setattr("rm.core.scheduling.foreseen.LATER", 0.0)
    said = foreseen(cluster).starts[waits]
    assert (wide.soonest_us, wide.likely_us) == (said.soonest_us, said.likely_us)
    after_us, wait_us = said.latest_us - said.likely_us, said.likely_us - cluster.now_us
    assert wait_us > 0 < after_us
    room_us = round(1.2 * after_us + 0.15 * wait_us)
    assert wide.latest_us == min(said.at_us, wide.likely_us + room_us) > said.latest_us


def ended(number: int, user: str, part: float) -> Job:
    return Job(
        number, builders.spec(user=user, time_limit_us=100 * SECOND), 0, JobState.COMPLETED, started_us=0,
        ended_us=round(part * 100 * SECOND),
    )  # fmt: skip


@pytest.mark.parametrize("ran_part", [0.0, 0.3])
def test_four_of_five_jobs_end_between_the_first_play_and_the_last(ran_part: float) -> None:
    rng, within, asked = random.Random(1), 0, 600
    known = Lengths((ended(n, "ann", rng.betavariate(1, 2)) for n in range(1, 500)), 0)
    for number in range(asked):
        while (truth := rng.betavariate(1, 2)) <= ran_part:
            pass
        job, ran_us = ended(1_000 + number, "ann", truth), round(ran_part * 100 * SECOND)
        plays = [known.left_us(job, ran_us, play) for play in range(PLAYS)]
        within += min(plays) <= truth * 100 * SECOND - ran_us <= max(plays)
    assert 0.75 <= within / asked <= 0.85


def test_so_it_is_where_few_jobs_have_ended() -> None:
    """Of eleven jobs that ended none needs to have taken as little, or as much, as the next one."""
    rng, within, asked = random.Random(1), 0, examples(1500)
    for number in range(asked):
        jobs = [ended(n, "ann", rng.betavariate(1, 2)) for n in range(1, 12)]
        truth = rng.betavariate(1, 2)
        known = Lengths(jobs, 0)
        plays = [known.left_us(ended(1_000 + number, "ann", truth), 0, play) for play in range(PLAYS)]
        within += min(plays) <= truth * 100 * SECOND <= max(plays)
    assert 0.75 <= within / asked <= 0.85


def test_jobs_with_limits_of_another_size_are_judged_apart() -> None:
    short = [
        replace(ended(n, "ann", 0.05), spec=builders.spec(time_limit_us=100 * SECOND)) for n in range(90)
    ]
    spec = builders.spec(time_limit_us=10_000 * SECOND)
    long = [replace(ended(n, "ann", 50.0), spec=spec) for n in range(90, 110)]
    job = replace(ended(200, "ann", 1.0), spec=spec)
    known = Lengths([*short, *long], 0)
    found = sorted(known.left_us(job, 0, play) for play in range(PLAYS))
    assert found[len(found) // 2] == pytest.approx(5_000 * SECOND, rel=0.01)


def test_users_are_judged_by_their_own_jobs_where_there_are_enough() -> None:
    jobs = [ended(n, "ann", 0.9) for n in range(20)] + [ended(n, "bob", 0.1) for n in range(20, 39)]
    known = Lengths(jobs, 0)
    fresh = {user: ended(100, user, 1.0) for user in ("ann", "bob")}
    anns, bobs = ([known.left_us(fresh[user], 0, play) for play in range(PLAYS)] for user in ("ann", "bob"))
    assert anns.count(90 * SECOND) >= PLAYS - 2
    assert {90 * SECOND, 10 * SECOND} <= set(bobs)
    left_us = known.left_us(fresh["ann"], 95 * SECOND, 0)
    assert 0 < left_us <= 5 * SECOND, "longer than all before it"
    assert not Lengths(jobs[:9], 0)


def running(number: int, user: str) -> Job:
    """From the beginning on."""
    return Job(number, _limited(user), 0, JobState.RUNNING, started_us=0)


@cache
def _limited(user: str) -> JobSpec:
    return builders.spec(user=user, time_limit_us=100 * SECOND)


def test_who_runs_long_counts_among_those_that_ended() -> None:
    """Of jobs of which half are long none has ended that is: 20 ended after 10 s, 20 run for 30 s."""
    jobs = [*(ended(n, "ann", 0.1) for n in range(20)), *(running(n, "ann") for n in range(20, 40))]
    known = Lengths(jobs, 30 * SECOND)
    draws = [known.left_us(running(100 + n, "ann"), 0, 0) for n in range(400)]
    assert sum(us > 30 * SECOND for us in draws) == pytest.approx(200, abs=40)
    assert min(draws) <= 10 * SECOND
    draws = [Lengths(jobs[:20], 0).left_us(running(100 + n, "ann"), 0, 0) for n in range(400)]
    assert sum(us > 30 * SECOND for us in draws) < 30, "of those that ended alone nobody would say so"


def test_four_of_five_lie_between_while_the_long_ones_run() -> None:
    """As many come each second as before; who has not ended after 60 s still runs."""
    rng, within, asked = random.Random(1), 0, examples(1500)
    for number in range(asked):
        jobs = list[Job]()
        for n in range(40):
            came_s, took_s = rng.uniform(0, 60), 100 * rng.betavariate(1, 2)
            job = replace(running(n, "ann"), started_us=round(came_s * SECOND))
            if came_s + took_s <= 60:
                ended_us = round((came_s + took_s) * SECOND)
                job = replace(job, state=JobState.COMPLETED, ended_us=ended_us)
            jobs.append(job)
        truth_us, known = 100 * SECOND * rng.betavariate(1, 2), Lengths(jobs, 60 * SECOND)
        begun = running(1_000 + number, "ann")
        plays = [known.left_us(begun, 0, play) for play in range(PLAYS)]
        within += min(plays) <= truth_us <= max(plays)
    assert 0.75 <= within / asked <= 0.85


JOBS = st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from([5, 20, 60]), st.integers(0, 2))


@pytest.mark.parametrize("queue", ["fifo", "backfill"])
@given(jobs=st.lists(JOBS, min_size=1, max_size=10), window=st.integers(0, 80))
@settings(max_examples=40, deadline=None)
def test_what_is_foreseen_comes_to_pass(queue: str, jobs: list[tuple[int, ...]], window: int) -> None:
    cluster = Reserving(hosts=2, cpus=3, queue=queue)
    if window:
        begins_us = (10 + window) * SECOND
        cluster.reserve(windows=((begins_us, begins_us + 30 * SECOND),), users=("zoe",))
    for tasks, cpus, limit_s, priority in jobs:
        more = {"ntasks": tasks, "cpus_per_task": cpus, "priority": priority}
        cluster.submit("", **limited(limit_s, **more))
        cluster.start()
    waiting = set(cluster.state.pending)
    found = foreseen(cluster).starts
    cluster.at(cluster.now_us + 1000 * SECOND)
    stories = ((number, cluster.state.jobs[number].history) for number in waiting)
    started = {
        number: at_us for number, story in stories for at_us, what in story if what.startswith("placed")
    }
    assert started.keys() == found.keys()
    for number, at_us in started.items():
        assert abs(at_us - found[number].at_us) <= 2 * SECOND, number
