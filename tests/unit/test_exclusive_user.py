"""--exclusive=user: hosts that jobs of one user share, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.model.job import Job, JobState
from rm.core.model.placement_request import request_of
from rm.core.model.reasons import ReasonCode
from rm.core.scheduling.explaining import explain
from tests import builders
from tests.examples import examples
from tests.unit.test_job_arrays import Cluster

S = JobState


def submit(cluster: Cluster, user: str, **spec: Any) -> int:
    return cluster.submit("", user=user, **spec)


def test_jobs_of_one_user_share_its_host_and_others_wait() -> None:
    cluster = Cluster(cpus=4)
    first = submit(cluster, "ann", exclusive_user=True)
    mine, other = submit(cluster, "ann"), submit(cluster, "bob")
    assert [cluster.state.jobs[job].state for job in (mine, other)] == [S.CONFIGURING, S.PENDING]
    job = cluster.state.jobs[other]
    reason = cluster.cycle.reason_of(job)
    assert reason is not None
    assert reason.code is ReasonCode.RESOURCES
    snapshot = cluster.state.snapshot(cluster.now_us)
    said = explain(job, snapshot, cluster.cycle.policies, cluster.cycle.tuning)[2][0].refused
    assert said is not None
    assert "has jobs of another user" in said.message
    cluster.end(cluster.state.jobs[first])
    assert cluster.state.jobs[other].state is S.CONFIGURING
    alone = submit(cluster, "bob", exclusive_user=True)
    cluster.end(cluster.state.jobs[other])
    assert cluster.state.jobs[alone].state is S.PENDING
    cluster.end(cluster.state.jobs[mine])
    assert cluster.state.jobs[alone].state is S.CONFIGURING


def test_of_two_equal_jobs_the_one_of_its_user_is_not_refused_with_the_other() -> None:
    cluster = Cluster(cpus=2)
    submit(cluster, "ann", exclusive_user=True)
    cluster.do(*(ev.JobSubmitted(job, builders.spec(user=user)) for job, user in ((2, "bob"), (3, "ann"))))
    assert [cluster.state.jobs[job].state for job in (2, 3)] == [S.PENDING, S.CONFIGURING]


def could_start(cluster: Cluster, job: Job) -> bool:
    """On some host: by what is there, looked at job by job."""
    for name, host in cluster.state.hosts.items():
        there = [cluster.state.jobs[n] for n in cluster.state.jobs_on.get(name, ())]
        others = [one for one in there if one.spec.user != job.spec.user]
        if others and (job.spec.exclusive_user or any(one.spec.exclusive_user for one in others)):
            continue
        if host.cpus - sum(one.spec.cpus_per_task for one in there) >= job.spec.cpus_per_task:
            return True
    return False


ACTS = st.tuples(st.booleans(), st.sampled_from("abc"), st.booleans(), st.integers(1, 2), st.integers(0, 9))


@pytest.mark.parametrize("queue", ["fifo", "backfill"])
@given(acts=st.lists(ACTS, max_size=25))
@settings(max_examples=examples(60), deadline=None)
def test_nothing_waits_that_fits_and_nobody_shares_who_may_not(
    queue: str, acts: list[tuple[bool, str, bool, int, int]]
) -> None:
    """`do` checks who shares a host after each step."""
    cluster = Cluster(hosts=2, cpus=3, queue=queue)
    for ends, user, alone, cpus, which in acts:
        running = [job for job in cluster.state.jobs.values() if job.occupies]
        if ends and running:
            cluster.end(running[which % len(running)])
        else:
            submit(cluster, user, exclusive_user=alone, cpus_per_task=cpus, time_limit_us=1_000_000)
        if queue == "fifo":
            waits = (cluster.state.jobs[job] for job in cluster.state.pending)
            stuck = [job.id for job in waits if could_start(cluster, job)]
            assert not stuck, f"{stuck} could start"
    while running := [job for job in cluster.state.jobs.values() if job.occupies]:
        cluster.end(running[0])
    assert not cluster.state.pending, "all have had their turn"


def test_a_host_of_the_users_own_is_none_for_others() -> None:
    cluster = Cluster(hosts=2)
    submit(cluster, "ann", exclusive_user=True)
    snapshot = cluster.state.snapshot(cluster.now_us)
    job = cluster.state.jobs[submit(cluster, "bob", cpus_per_task=2)]
    assert request_of(job, snapshot).demand.shape.foreign == ("h1",)
    assert [task.host for task in job.tasks] == ["h2"]
