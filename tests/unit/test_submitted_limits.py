"""Limits of submitted jobs hold whatever way a job comes under them: nobody keeps others out with more."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import JobState
from tests.unit.test_limits import Cluster, lab

MOVE = JobUpdate(qos="fast")


def refused(cluster: Cluster, event: ev.Event) -> str:
    """Why it was; "" when it was not."""
    told = cluster.cycle.step([event], cluster.now_us).refused
    return str(told[0]) if told else ""


def in_fast(cluster: Cluster) -> int:
    """Counted anew."""
    state: ClusterState = restore_state(dump_state(cluster.state, cluster.now_us), cluster.now_us)
    assert +state.tally.submitted == +cluster.state.tally.submitted
    return sum(
        count for key, count in state.tally.submitted.items() if (key.name, key.each) == ("fast", "bob")
    )


def test_a_job_is_not_moved_to_where_its_user_has_as_many_as_may_be() -> None:
    cluster = Cluster(lab(fast={"user.submitted": 2}))
    jobs = [cluster.submit("bob", "physics", hold=True) for _ in range(3)]
    assert [refused(cluster, ev.JobUpdated(job, "bob", MOVE)) for job in jobs[:2]] == ["", ""]
    why = refused(cluster, ev.JobUpdated(jobs[2], "bob", MOVE))
    assert why.startswith("bob in QOS fast has 2 of at most 2 submitted jobs, and would have 3.")
    assert (cluster.state.jobs[jobs[2]].qos, in_fast(cluster)) == ("", 2)
    assert refused(cluster, ev.JobUpdated(jobs[0], "bob", JobUpdate(qos="fast", name="again"))) == ""
    assert refused(cluster, ev.JobUpdated(jobs[0], "bob", JobUpdate(qos="slow"))) == ""
    assert refused(cluster, ev.JobUpdated(jobs[2], "bob", MOVE)) == ""


def test_an_array_counts_with_all_its_elements_also_those_that_have_left_it() -> None:
    cluster = Cluster(lab(fast={"user.submitted": 3, "job.elements": 5}))
    wide = cluster.submit("bob", "physics", array="0-9", hold=True)
    assert "has 10 elements, and one of QOS fast at most 5" in refused(
        cluster, ev.JobUpdated(wide, "bob", MOVE)
    )
    array = cluster.submit("bob", "physics", array="0-3", hold=True)
    first = cluster.state.next_job
    alone = ev.JobUpdated(array, "bob", JobUpdate(name="own"), array_tasks="0-2", first_job=first)
    assert refused(cluster, alone) == ""  # these are jobs of their own from here on
    assert "would have 4" in refused(cluster, ev.JobUpdated(array, "bob", MOVE))
    assert in_fast(cluster) == 0
    some = ev.JobUpdated(array, "bob", MOVE, array_tasks="0-3", first_job=cluster.state.next_job)
    assert refused(cluster, some) == ""  # as many as may be
    assert in_fast(cluster) == 3


def test_what_has_ended_is_requeued_within_the_limit() -> None:
    cluster = Cluster(lab(fast={"user.submitted": 2}))
    ended = [cluster.submit("bob", "physics", "fast") for _ in range(2)]
    array = cluster.submit("bob", "physics", array="0-2")
    for job in [*ended, *cluster.state.elements[array].values()]:
        cluster.end(job)
    cluster.submit("bob", "physics", "fast", hold=True)
    assert refused(cluster, ev.RequeueRequested(ended[0], "bob")) == ""
    assert "would have 3" in refused(cluster, ev.RequeueRequested(ended[1], "bob"))
    assert cluster.state.jobs[ended[1]].state is JobState.COMPLETED
    assert refused(cluster, ev.RequeueRequested(ended[0], "bob")) == ""  # one that runs counts already
    cluster.step(ev.AccountsSet(lab({"submitted": 4}), "root"))
    assert "would have" in refused(cluster, ev.RequeueRequested(array, "bob"))
    assert all(cluster.state.jobs[job].state.final for job in cluster.state.elements[array].values())
    cluster.step(ev.CancelRequested(ended[0], "bob"))
    assert refused(cluster, ev.RequeueRequested(array, "bob", "0-1")) == ""
