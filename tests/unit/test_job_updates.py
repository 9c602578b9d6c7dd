"""`rmx set` in the pure core: what changes of a job after its submission, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import SetLimit
from rm.core.model.job import JobState
from rm.core.model.job_update import JobUpdate
from rm.core.model.reasons import ReasonCode
from tests import builders
from tests.unit.test_job_arrays import Cluster

S = JobState
MINUTE_US = 60_000_000


def single(cluster: Cluster, **spec: Any) -> int:
    return cluster.submit("", **spec)


def change(job: int, may_raise: bool = False, **fields: Any) -> ev.JobUpdated:
    return ev.JobUpdated(job, "ann", JobUpdate(**fields), may_raise=may_raise)


def start(cluster: Cluster, job: int) -> None:
    record = cluster.state.jobs[job]
    for host in dict.fromkeys(t.host for t in record.tasks):
        ranks = tuple(t.rank for t in record.tasks if t.host == host)
        cluster.do(ev.TasksStarted(job, record.attempt, host, cluster.now_us, ranks))


def test_a_waiting_job_starts_with_what_was_changed() -> None:
    cluster = Cluster(hosts=2)
    first, waits = single(cluster, cpus_per_task=2, ntasks=2), single(cluster, cpus_per_task=2)
    assert cluster.state.jobs[first].state is S.CONFIGURING
    assert cluster.state.jobs[waits].state is S.PENDING
    cluster.do(change(waits, hosts_only=("h2",), name="other", comment="c", priority=7, nice=3))
    job = cluster.state.jobs[waits]
    assert (job.spec.name, job.spec.comment, job.spec.queue_priority, job.updates) == ("other", "c", 4, 1)
    said = "changed by ann: name=other, comment=c, priority=7, nice=3, hosts_only=h2"
    assert job.history[-1][1] == said
    cluster.end(cluster.state.jobs[first])
    assert [t.host for t in cluster.state.jobs[waits].tasks] == ["h2"]


def test_a_job_that_asks_for_less_starts_at_once() -> None:
    cluster = Cluster()
    single(cluster)
    waits = single(cluster, cpus_per_task=2)
    assert cluster.state.jobs[waits].state is S.PENDING
    cluster.do(change(waits, cpus_per_task=1))
    assert cluster.state.jobs[waits].state is S.CONFIGURING


def test_priority_changes_whose_turn_it_is() -> None:
    cluster = Cluster(queue="priority")
    running = single(cluster, cpus_per_task=2)
    early, late = single(cluster, cpus_per_task=2), single(cluster, cpus_per_task=2)
    cluster.do(change(late, priority=5))
    cluster.end(cluster.state.jobs[running])
    assert cluster.state.jobs[late].state is S.CONFIGURING
    assert cluster.state.jobs[early].state is S.PENDING


def test_the_time_limit_of_a_job_that_runs_is_lowered_by_its_user_and_raised_by_an_administrator() -> None:
    cluster = Cluster()
    job = single(cluster, time_limit_us=10 * MINUTE_US)
    start(cluster, job)
    out = cluster.do(change(job, time_limit_us=5 * MINUTE_US))
    assert [i.action for i in out.intents] == [SetLimit(job, 1, "h1", 5 * MINUTE_US)]
    for more in (6 * MINUTE_US, 0):
        assert "only an administrator may raise" in cluster.refused(change(job, time_limit_us=more))
    out = cluster.do(change(job, may_raise=True, time_limit_us=0))
    assert [i.action for i in out.intents] == [SetLimit(job, 1, "h1", 0)]
    assert cluster.state.jobs[job].spec.time_limit_us is None


def test_what_its_hosts_were_promised_stays_while_a_job_runs() -> None:
    cluster = Cluster()
    job = single(cluster)
    assert "CONFIGURING: cpus_per_task, partition cannot" in cluster.refused(
        change(job, cpus_per_task=2, partition="p")
    )
    start(cluster, job)
    cluster.do(change(job, name="renamed", comment="c", requeue=False))
    assert cluster.state.jobs[job].spec.name == "renamed"
    cluster.end(cluster.state.jobs[job])
    assert "cannot be changed any more" in cluster.refused(change(job, comment="late"))


def test_two_changes_of_one_turn_must_fit_together() -> None:
    cluster = Cluster()
    single(cluster, cpus_per_task=2)
    job = single(cluster, ntasks=2)
    refused = cluster.refused(change(job, ntasks=1), change(job, hosts_min=2, hosts_max=2))
    assert "1 tasks cannot use 2 hosts" in refused
    assert (cluster.state.jobs[job].spec.ntasks, cluster.state.jobs[job].spec.hosts_min) == (1, 0)


def test_dependencies_are_given_changed_and_taken_back() -> None:
    cluster = Cluster()
    running = single(cluster, cpus_per_task=2)
    job = single(cluster)
    cluster.do(change(job, dependency=f"afterok:{running}"))
    assert cluster.state.reasons[job].code is ReasonCode.DEPENDENCY
    cluster.do(change(job, dependency=f"afternotok:{running}"))
    cluster.end(cluster.state.jobs[running], code=1)
    assert cluster.state.jobs[job].state is S.CONFIGURING
    other = single(cluster, dependency=f"after:{job}", cpus_per_task=2)
    cluster.do(change(other, dependency=""))
    cluster.end(cluster.state.jobs[job])
    assert cluster.state.jobs[other].state is S.CONFIGURING


@pytest.mark.parametrize("to", ["self", "direct", "array", "singleton"])
def test_no_job_comes_to_wait_for_itself(to: str) -> None:
    cluster = Cluster()
    single(cluster, cpus_per_task=2)
    job = single(cluster, name="x")
    if to == "self":
        last = job
    elif to == "singleton":
        last = single(cluster, name="x", dependency="singleton")
    else:
        middle = cluster.submit("0-2" if to == "array" else "", dependency=f"afterok:{job}")
        last = single(cluster, dependency=f"afterany:{middle}")
    assert "would wait for itself" in cluster.refused(change(job, dependency=f"afterok:{last}"))
    assert cluster.state.jobs[job].dependencies == ()


def test_a_new_name_counts_for_singletons() -> None:
    cluster = Cluster()
    running = single(cluster, name="a", cpus_per_task=1)
    job = single(cluster, name="a", dependency="singleton", cpus_per_task=1)
    assert cluster.state.jobs[job].state is S.PENDING
    cluster.do(change(job, name="b"))
    assert cluster.state.jobs[job].state is S.CONFIGURING
    waits = single(cluster, name="b", dependency="singleton", cpus_per_task=1)
    cluster.end(cluster.state.jobs[running])
    assert cluster.state.jobs[waits].state is S.PENDING
    cluster.do(change(job, name="c"))
    assert cluster.state.jobs[waits].state is S.CONFIGURING


def test_the_elements_of_an_array_share_a_change() -> None:
    cluster = Cluster()
    array = cluster.submit("0-3", time_limit_us=10 * MINUTE_US)
    first = cluster.job(array, 0)
    assert "share what was asked for" in cluster.refused(change(first.id, comment="c"))
    out = cluster.do(change(array, time_limit_us=5 * MINUTE_US, comment="c"))
    limits = {(a.job, a.time_limit_us) for a in (i.action for i in out.intents) if isinstance(a, SetLimit)}
    assert limits == {(cluster.job(array, task).id, 5 * MINUTE_US) for task in (0, 1)}
    assert cluster.job(array, 1).spec is cluster.state.jobs[array].spec
    assert "Elements 0-1 of job 1 run" in cluster.refused(change(array, cpus_per_task=2))
    assert "have started" in cluster.refused(change(array, dependency="singleton"))
    assert "administrator" in cluster.refused(change(array, time_limit_us=6 * MINUTE_US))
    cluster.run_all(array)
    assert "has ended already" in cluster.refused(change(array, comment="late"))


def test_a_waiting_array_may_ask_for_other_resources() -> None:
    cluster = Cluster(hosts=1)
    single(cluster, cpus_per_task=2)
    array = cluster.submit("0-1", cpus_per_task=2)
    cluster.do(change(array, cpus_per_task=1))
    cluster.end(cluster.state.jobs[1])
    assert cluster.running(array) == [0, 1]


def test_a_damaged_change_is_no_job() -> None:
    cluster = Cluster()
    assert "Job 9 is not known" in cluster.refused(change(9, comment="c"))
    single(cluster, cpus_per_task=2)
    job = single(cluster)
    assert "must be a word" in cluster.refused(change(job, name="a/b"))
    assert cluster.state.jobs[job].spec == builders.spec()
