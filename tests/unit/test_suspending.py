"""Suspending jobs in the pure core: who may be suspended, what is ordered, and what the time is worth."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Freeze, Stop
from rm.core.model.job import JobState
from rm.core.model.progress import attained_us
from rm.core.registry import load
from tests.unit.test_job_arrays import Cluster

S = JobState
MINUTE_US = 60_000_000


def started(cluster: Cluster, job: int) -> None:
    record = cluster.state.jobs[job]
    for host in dict.fromkeys(t.host for t in record.tasks):
        if len({t.host for t in record.tasks}) > 1:
            cluster.do(ev.TasksPrepared(job, record.attempt, host))
    for host in dict.fromkeys(t.host for t in record.tasks):
        ranks = tuple(t.rank for t in record.tasks if t.host == host)
        cluster.do(ev.TasksStarted(job, record.attempt, host, cluster.now_us, ranks))


def test_a_job_stands_still_on_all_its_hosts_and_goes_on() -> None:
    cluster = Cluster(hosts=2)
    job = cluster.submit("", ntasks=4)
    assert "CONFIGURING and cannot be suspended" in cluster.refused(ev.SuspendRequested(job, "root"))
    started(cluster, job)
    out = cluster.do(ev.SuspendRequested(job, "root"))
    assert [i.action for i in out.intents] == [Freeze(job, 1, host, True, 1) for host in ("h1", "h2")]
    assert cluster.state.jobs[job].state is S.SUSPENDED
    assert "SUSPENDED and cannot be suspended" in cluster.refused(ev.SuspendRequested(job, "root"))
    waits = cluster.submit("")
    assert cluster.state.jobs[waits].state is S.PENDING  # it keeps what it holds
    suspended_us = cluster.state.jobs[job].suspended_us
    assert suspended_us is not None
    cluster.now_us += MINUTE_US
    out = cluster.do(ev.ResumeRequested(job, "root"))
    assert [i.action for i in out.intents] == [Freeze(job, 1, host, False, 2) for host in ("h1", "h2")]
    again = cluster.state.jobs[job]
    assert (again.state, again.suspended_us) == (S.RUNNING, None)
    assert again.stood_us == cluster.now_us - suspended_us
    assert "RUNNING and cannot be resumed" in cluster.refused(ev.ResumeRequested(job, "root"))


def test_the_time_for_which_it_stood_still_does_not_count() -> None:
    cluster = Cluster()
    job = cluster.submit("", time_limit_us=10 * MINUTE_US)
    started(cluster, job)
    start_us = cluster.state.jobs[job].started_us
    assert start_us is not None
    cluster.now_us = start_us + MINUTE_US - 10
    cluster.do(ev.SuspendRequested(job, "root"))
    record, snapshot = cluster.state.jobs[job], cluster.state.snapshot(cluster.now_us)
    assert attained_us(record, None, start_us + 30 * MINUTE_US) == MINUTE_US
    assert load("queue", "backfill").end_us(record, snapshot) is None
    cluster.now_us = start_us + 31 * MINUTE_US - 10
    cluster.do(ev.ResumeRequested(job, "root"))
    record = cluster.state.jobs[job]
    now_us = start_us + 32 * MINUTE_US
    assert attained_us(record, None, now_us) == 2 * MINUTE_US
    later = replace(cluster.state.snapshot(now_us), progress=MappingProxyType({}))
    assert load("queue", "backfill").end_us(record, later) == now_us + 8 * MINUTE_US


def test_a_suspended_job_is_cancelled_requeued_and_ends_as_any_other() -> None:
    cluster = Cluster(hosts=3)
    jobs = [cluster.submit("", cpus_per_task=2) for _ in range(3)]
    for job in jobs:
        started(cluster, job)
        cluster.do(ev.SuspendRequested(job, "root"))
    cancelled, requeued, killed = jobs
    for event in (ev.CancelRequested(cancelled, "ann"), ev.RequeueRequested(requeued, "ann")):
        out = cluster.do(event)
        assert [type(i.action) for i in out.intents] == [Stop]
        cluster.end(cluster.state.jobs[event.job])
    assert cluster.state.jobs[cancelled].state is S.CANCELLED
    again = cluster.state.jobs[requeued]
    assert (again.state, again.attempt, again.freezes, again.stood_us) == (S.CONFIGURING, 2, 0, 0)
    cluster.end(cluster.state.jobs[killed], code=9)
    assert (cluster.state.jobs[killed].state, cluster.state.jobs[killed].suspended_us) == (S.FAILED, None)


def test_of_an_array_those_elements_that_run_are_suspended() -> None:
    cluster = Cluster()
    array = cluster.submit("0-3")
    assert "no element that runs" in cluster.refused(ev.SuspendRequested(array, "root"))
    for task in (0, 1):
        started(cluster, cluster.job(array, task).id)
    cluster.do(ev.SuspendRequested(array, "root"))
    assert [cluster.job(array, task).state for task in (0, 1)] == [S.SUSPENDED] * 2
    cluster.do(ev.ResumeRequested(array, "root", "1"))
    assert [cluster.job(array, task).state for task in (0, 1)] == [S.SUSPENDED, S.RUNNING]
    assert "no element that is suspended" in cluster.refused(ev.ResumeRequested(array, "root", "1"))
