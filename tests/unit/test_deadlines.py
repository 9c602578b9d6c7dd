"""`--deadline` and `--time-min` in the pure core."""

from __future__ import annotations

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.instants import Instants
from rm.core.jobs.state import rebuild
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import JobState
from rm.core.model.reasons import ReasonCode
from rm.core.scheduling.cycle import BEGIN_AT_ONCE
from rm.core.scheduling.due import AT_ONCE
from tests.unit.test_job_arrays import Cluster

S = JobState
HOUR_US = 3_600_000_000


def clocked() -> Cluster:
    """With something that runs and leaves no room."""
    cluster = Cluster()
    cluster.submit("", cpus_per_task=2)
    return cluster


def at(cluster: Cluster, now_us: int) -> None:
    cluster.now_us = now_us - 10
    cluster.do(ev.Tick())


@pytest.mark.parametrize(
    ("limit_us", "least_us", "latest_us"),
    [(HOUR_US, None, 9 * HOUR_US), (HOUR_US, HOUR_US // 2, 19 * HOUR_US // 2), (None, None, 10 * HOUR_US)],
)
def test_a_job_is_cancelled_when_it_could_not_be_over_in_time(
    limit_us: int | None, least_us: int | None, latest_us: int
) -> None:
    cluster = clocked()
    job = cluster.submit("", time_limit_us=limit_us, time_min_us=least_us, deadline_us=10 * HOUR_US)
    assert cluster.cycle.next_due_us() == latest_us + 1
    at(cluster, latest_us)
    assert cluster.state.jobs[job].state is S.PENDING
    at(cluster, latest_us + 1)
    ended = cluster.state.jobs[job]
    assert (ended.state, ended.ended_us) == (S.CANCELLED, latest_us + 1)
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.DEADLINE
    assert cluster.state.deadlines == {}


def test_one_that_starts_late_gets_what_is_left() -> None:
    cluster = clocked()
    job = cluster.submit("", time_limit_us=2 * HOUR_US, time_min_us=HOUR_US, deadline_us=10 * HOUR_US)
    cluster.now_us = 17 * HOUR_US // 2 - 10
    cluster.end(cluster.state.jobs[1])
    assert cluster.state.jobs[job].allowed_us == 3 * HOUR_US // 2
    early = clocked()
    job = early.submit("", time_limit_us=2 * HOUR_US, deadline_us=10 * HOUR_US)
    early.end(early.state.jobs[1])
    assert early.state.jobs[job].allowed_us is None


def test_what_waits_for_a_late_job_ends_with_it() -> None:
    cluster = clocked()
    late = cluster.submit("", deadline_us=HOUR_US)
    waits = cluster.submit("", dependency=f"afterok:{late}", deadline_us=HOUR_US)
    at(cluster, HOUR_US + 1)
    assert [cluster.state.jobs[i].state for i in (late, waits)] == [S.CANCELLED, S.CANCELLED]


def test_the_elements_of_an_array_that_wait_are_dropped() -> None:
    cluster = Cluster()
    array = cluster.submit("0-3", deadline_us=HOUR_US)
    at(cluster, HOUR_US + 1)
    record = cluster.array(array)
    assert (record.dropped, record.running, record.waiting) == ("2-3", "0-1", "")


def test_a_new_daemon_and_a_change_keep_the_deadline() -> None:
    cluster = clocked()
    job = cluster.submit("", deadline_us=HOUR_US)
    state = cluster.state
    again = rebuild(state.jobs.values(), state.hosts.values(), (), {}, 9, 9, cluster.now_us)
    assert again.deadlines == {job: HOUR_US}
    cluster.do(ev.JobUpdated(job, "ann", JobUpdate(deadline_us=2 * HOUR_US)))
    assert state.deadlines == {job: 2 * HOUR_US}
    cluster.do(ev.JobUpdated(job, "ann", JobUpdate(deadline_us=0)))
    assert state.deadlines == {}


def test_a_step_cancels_a_part_of_many_that_are_late_and_starts_none_of_the_rest() -> None:
    """A user may have 100,000 jobs of one deadline."""
    cluster = clocked()
    for _ in range(AT_ONCE + 1):
        cluster.submit("", cpus_per_task=2, deadline_us=HOUR_US)
    cluster.now_us = HOUR_US + 1
    cluster.end(cluster.state.jobs[1])  # all could start now
    assert len(cluster.state.pending) == 1
    assert not cluster.state.placed
    assert cluster.cycle.next_due_us() == HOUR_US + 1
    cluster.do(ev.Tick())
    assert not cluster.state.pending
    assert cluster.cycle.next_due_us() is None


def test_a_step_begins_to_try_a_part_of_many_jobs_whose_time_has_come() -> None:
    cluster = Cluster()
    for i in range(BEGIN_AT_ONCE + 1):
        cluster.submit("", begin_us=HOUR_US, cpus_per_task=99, mem_bytes_per_task=1 + i)
    at(cluster, HOUR_US)
    assert len(cluster.cycle.blocked.reasons) == BEGIN_AT_ONCE
    assert cluster.cycle.next_due_us() == 0
    at(cluster, HOUR_US)
    assert len(cluster.cycle.blocked.reasons) == BEGIN_AT_ONCE + 1


def test_of_many_jobs_whose_time_has_come_those_begin_first_that_come_first_in_the_queue() -> None:
    """Not those of low ids: who submits many of one instant passes nobody."""
    cluster = Cluster(queue="priority")
    for _ in range(BEGIN_AT_ONCE):
        cluster.submit("", begin_us=HOUR_US, cpus_per_task=2)
    high, higher = (cluster.submit("", begin_us=at_us, cpus_per_task=2, priority=priority)
                    for at_us, priority in ((HOUR_US, 98), (HOUR_US + 1, 99)))  # fmt: skip
    at(cluster, HOUR_US + 1)
    assert [*cluster.state.placed] == [higher]
    cluster.end(cluster.state.jobs[higher])
    assert [*cluster.state.placed] == [high]
    cluster.do()
    assert cluster.cycle.next_due_us() != 0


@pytest.mark.parametrize("queue", ["priority", "backfill"])
def test_of_many_jobs_that_are_lost_at_once_those_start_again_first_that_come_first_in_the_queue(
    monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    """A step gives up a part of the hosts. Jobs on these must not take what is free before all are known."""
    monkeypatch.setattr("rm.core.scheduling.due.AT_ONCE", 4)
    cluster = Cluster(hosts=10, queue=queue)
    cluster.do(ev.HostDrained("h10", "ann", "later"))
    *_, high = (cluster.submit("", cpus_per_task=2, priority=9 * (i == 8)) for i in range(9))
    cluster.do(*(ev.HostSilent(f"h{i}", "no answer") for i in range(1, 10)))
    cluster.do(ev.HostResumed("h10", "ann"))
    at(cluster, cluster.now_us + HOUR_US)
    steps = 1
    while (due_us := cluster.cycle.next_due_us()) is not None and due_us <= cluster.now_us:
        cluster.do(ev.Tick())
        steps += 1
    assert steps > 1
    assert [*cluster.state.placed] == [high]


def test_the_first_instant_is_known_after_any_change() -> None:
    known = Instants()
    assert known.first_us() is None
    for job in range(200):
        known[job] = 1_000 - job
    known[199] = 2_000
    known.pop(198)
    del known[197]
    assert known.first_us() == 1_000 - 196
    assert known.before(1_000 - 194, 5) == [196, 195]
    assert known.before(10_000, 3) == [196, 195, 194]
    assert known.take_before(1_000 - 194) == [196, 195]
    assert known.first_us() == 1_000 - 194
    again = known.copy()
    assert (again, again.first_us()) == (known, known.first_us())
    known.clear()
    assert known.first_us() is None
