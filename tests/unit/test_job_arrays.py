"""Job arrays in the pure core: one record until an element is placed, and what users ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rm import arrays
from rm.arrays import each, text_of
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Launch
from rm.core.jobs.elements import shown_element
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.model.asked.array import Array
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.held import why_held
from rm.errors import IllegalTransition, Refusal
from tests import builders
from tests.invariants import validate_state

S = JobState


class Cluster:
    """A cycle over hosts of two CPUs each, and a clock."""

    def __init__(self, hosts: int = 1, cpus: int = 2, placements: int = 0, queue: str = "fifo") -> None:
        policies = Policies(load("queue", queue), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies, Rules(grace_us=5), Tuning(placements=placements))
        self.now_us = 100
        names = [f"h{n}" for n in range(1, hosts + 1)]
        self.do(*(ev.HostAdded(builders.host(n, cpus=cpus)) for n in names))
        self.do(*(ev.HostUp(n, "boot", "1") for n in names))

    @property
    def state(self) -> ClusterState:
        return self.cycle.state

    def do(self, *events: ev.Event) -> Outcome:
        self.now_us += 10
        out = self.cycle.step(events, self.now_us)
        validate_state(self.state)
        return out

    def submit(self, array: str, job: int = 0, **spec: object) -> int:
        job = job or self.state.next_job
        self.do(ev.JobSubmitted(job, builders.spec(array=array, **spec)))
        return job

    def refused(self, *events: ev.Event) -> str:
        (refusal,) = self.do(*events).refused.values()
        assert isinstance(refusal, IllegalTransition)
        return refusal.what

    def job(self, array: int, task: int) -> Job:
        """The element's own job."""
        return self.state.jobs[self.state.elements[array][task]]

    def end(self, job: Job, code: int = 0) -> Outcome:
        return self.do(
            *(
                ev.TaskExited(job.id, job.attempt, t.host, t.rank, code, 0, self.now_us, self.now_us)
                for t in job.tasks
            )
        )

    def running(self, array: int = 1) -> list[int]:
        return each(self.array(array).has("running"))

    def array(self, job: int = 1) -> Array:
        found = self.state.jobs[job].array
        assert found is not None
        return found

    def run_all(self, array: int = 1, codes: dict[int, int] | None = None) -> None:
        while self.running(array):
            for task in self.running(array):
                self.end(self.job(array, task), (codes or {}).get(task, 0))


def refs(jobs: Sequence[Job]) -> list[str]:
    return [job.ref for job in jobs]


def test_an_array_is_one_record_until_elements_are_placed() -> None:
    cluster = Cluster()
    cluster.submit("0-99999")
    assert len(cluster.state.jobs) == 1 + 2
    assert cluster.state.jobs[1].ref == "1_[2-99999]"
    assert refs([cluster.job(1, 0), cluster.job(1, 1)]) == ["1_0", "1_1"]
    assert [cluster.job(1, task).id for task in (0, 1)] == [2, 3]
    assert cluster.state.next_job == 4
    reason = cluster.cycle.reason_of(cluster.state.jobs[1])
    assert reason is not None
    assert reason.code is ReasonCode.RESOURCES


def test_an_element_is_launched_with_the_commit_that_makes_its_job() -> None:
    cluster = Cluster()
    out = cluster.do(ev.JobSubmitted(1, builders.spec(array="5,7")))
    assert out.changes.jobs == {1, 2, 3}
    assert [(i.action.job, type(i.action)) for i in out.intents] == [(2, Launch), (3, Launch)]


def test_each_element_runs_once_and_the_array_ends_with_the_last() -> None:
    cluster = Cluster()
    cluster.submit("0-6")
    seen = []
    while cluster.running():
        task = cluster.running()[0]
        seen.append(task)
        cluster.end(cluster.job(1, task))
    assert sorted(seen) == list(range(7))
    assert cluster.state.jobs[1].state is S.COMPLETED
    assert cluster.state.jobs[1].exit_code == 0
    assert not cluster.state.pending


def test_an_array_fails_with_its_worst_element() -> None:
    cluster = Cluster()
    cluster.submit("0-3")
    cluster.run_all(codes={1: 3, 2: 2})
    array = cluster.state.jobs[1]
    assert (array.state, array.exit_code) == (S.FAILED, 3)
    assert cluster.array().failed == "1-2"


@pytest.mark.parametrize("placements", [0, 1, 3])
def test_no_more_elements_run_than_the_limit_allows(placements: int) -> None:
    cluster = Cluster(cpus=8, placements=placements)
    cluster.submit("0-9%3")
    while cluster.cycle.next_due_us() == 0:
        cluster.do()
    assert cluster.running() == [0, 1, 2]
    assert cluster.state.jobs[1].ref == "1_[3-9%3]"
    reason = cluster.cycle.reason_of(cluster.state.jobs[1])
    assert reason is not None
    assert reason.code is ReasonCode.ARRAY_LIMIT
    cluster.end(cluster.job(1, 1))
    assert cluster.running() == [0, 2, 3]
    cluster.run_all()
    assert cluster.state.jobs[1].state is S.COMPLETED


def test_the_limit_can_be_changed_while_elements_run() -> None:
    cluster = Cluster(cpus=8)
    cluster.submit("0-9%2")
    cluster.do(ev.ArrayLimitSet(1, "ann", 5))
    assert cluster.running() == [0, 1, 2, 3, 4]
    cluster.do(ev.ArrayLimitSet(1, "ann", 1))
    cluster.end(cluster.job(1, 0))
    assert cluster.running() == [1, 2, 3, 4]
    cluster.do(ev.ArrayLimitSet(1, "ann", 0))
    assert cluster.running() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_requeued_element_waits_for_the_limit_as_the_others() -> None:
    cluster = Cluster(cpus=8)
    cluster.submit("0-2%1")
    cluster.do(ev.RequeueRequested(1, "ann", "0"))
    first = cluster.job(1, 0)
    cluster.end(first)
    assert len(cluster.running()) == 1
    cluster.run_all()
    assert cluster.array().completed == "0-2"


def test_elements_are_held_and_released_one_by_one() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-5")
    cluster.do(ev.HoldRequested(1, "ann", "1-3"))
    cluster.end(cluster.job(1, 0))
    assert cluster.running() == [4]
    cluster.do(ev.HoldRequested(1, "ann"))
    cluster.end(cluster.job(1, 4))
    assert cluster.running() == []
    assert cluster.state.jobs[1].held
    cluster.do(ev.ReleaseRequested(1, "ann", "2"))
    assert cluster.running() == [2]
    cluster.do(ev.ReleaseRequested(1, "ann"))
    cluster.run_all()
    assert cluster.state.jobs[1].state is S.COMPLETED


def test_a_user_releases_no_elements_that_an_administrator_held() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-3")
    cluster.do(ev.HoldRequested(1, "op", "2", as_admin=True), ev.HoldRequested(1, "ann"))
    cluster.do(ev.ReleaseRequested(1, "ann"))
    assert (cluster.array().held, cluster.array().admin_held) == ("2", "2")
    refusal = cluster.refused(ev.ReleaseRequested(1, "ann", "2"))
    assert refusal == "Job 1_2 cannot be released: an administrator holds it."
    for task in (0, 1, 3):
        cluster.end(cluster.job(1, task))
    shown = shown_element(cluster.state.jobs[1], 2)
    assert shown is not None
    assert (cluster.state.jobs[1].admin_held, shown.admin_held) == (True, True)
    assert why_held(shown).code is ReasonCode.HELD_ADMIN
    cluster.do(ev.ReleaseRequested(1, "op", as_admin=True))
    assert (cluster.running(), cluster.array().admin_held) == ([2], "")
    assert not cluster.state.jobs[1].admin_held
    requeued = cluster.job(1, 2)
    cluster.do(ev.RequeueRequested(1, "ann", "2", hold=True))
    cluster.end(requeued)
    cluster.do(ev.HoldRequested(1, "op", "2", as_admin=True))
    refusal = cluster.refused(ev.ReleaseRequested(1, "ann"))
    assert refusal == "Job 1 cannot be released: an administrator holds it."


def test_elements_that_an_administrator_held_are_held_when_they_are_requeued() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-5", hold=True)
    cluster.do(ev.HoldRequested(1, "op", "3-5", as_admin=True))
    cluster.do(ev.CancelRequested(1, "ann", "2-5"), ev.RequeueRequested(1, "ann", "2-5"))
    assert (cluster.array().waiting, cluster.array().held) == ("0-5", "0-1,3-5")
    assert cluster.array().admin_held == "3-5"
    cluster.do(ev.CancelRequested(1, "ann", "3"))
    cluster.do(ev.ReleaseRequested(1, "ann"))
    assert cluster.array().held == "4-5"
    cluster.do(ev.ReleaseRequested(1, "op", as_admin=True))
    assert (cluster.array().held, cluster.array().admin_held) == ("", "3")


def test_of_an_array_that_waits_the_reason_says_who_releases_it() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-1")
    cluster.do(ev.HoldRequested(1, "op", "0-1", as_admin=True))
    assert why_held(cluster.state.jobs[1]).code is ReasonCode.HELD_ADMIN
    cluster.do(ev.HoldRequested(1, "ann"), ev.ReleaseRequested(1, "op", "1", as_admin=True))
    cluster.do(ev.HoldRequested(1, "ann"))
    assert why_held(cluster.state.jobs[1]).code is ReasonCode.HELD_USER


def test_an_array_may_be_submitted_held() -> None:
    cluster = Cluster()
    cluster.submit("0-1", hold=True)
    assert cluster.running() == []
    cluster.do(ev.ReleaseRequested(1, "ann"))
    assert cluster.running() == [0, 1]


def test_cancelling_reaches_the_elements_that_wait_and_those_that_run() -> None:
    cluster = Cluster()
    cluster.submit("0-9")
    cluster.do(ev.CancelRequested(1, "ann", "1,4-6"))
    assert cluster.job(1, 1).state is S.COMPLETING
    assert cluster.array().dropped == "4-6"
    assert cluster.job(1, 0).state is S.CONFIGURING
    cluster.do(ev.CancelRequested(1, "ann"))
    for task in (0, 1):
        cluster.end(cluster.job(1, task), 15)
    assert cluster.state.jobs[1].state is S.CANCELLED
    assert cluster.array().cancelled == "0-1"
    assert cluster.state.jobs[1].ref == "1_[2-9]"
    for named, tasks in (("1", ""), ("1_[4-6]", "4-6")):
        (error,) = cluster.do(ev.CancelRequested(1, "ann", tasks)).refused.values()
        assert isinstance(error, IllegalTransition)
        assert (error.what, error.refusal) == (f"Job {named} has ended already.", Refusal.ENDED)


def test_what_cannot_be_asked_of_elements_is_refused() -> None:
    cluster = Cluster()
    cluster.submit("0-3")
    assert (
        cluster.refused(ev.HoldRequested(1, "ann", "0")) == "Job 1_0 cannot be held: only pending jobs can."
    )
    assert cluster.refused(ev.HoldRequested(1, "ann", "3-4")) == "Job array 1 has no element 4."
    assert cluster.refused(ev.RequeueRequested(1, "ann", failed=True)) == "Job 1 has no element that failed."
    cluster.do(ev.JobSubmitted(9, builders.spec()))
    assert "is no job array" in cluster.refused(ev.ArrayLimitSet(9, "ann", 2))
    assert "is no job array" in cluster.refused(ev.HoldRequested(9, "ann", "3"))


def test_requeueing_what_failed_runs_that_alone_again() -> None:
    cluster = Cluster(cpus=4)
    cluster.submit("0-7")
    cluster.run_all(codes={2: 1, 5: 1})
    cluster.do(ev.RequeueRequested(1, "ann", failed=True))
    assert cluster.running() == [2, 5]
    assert cluster.state.jobs[1].state is S.RUNNING
    cluster.run_all()
    assert (cluster.state.jobs[1].state, cluster.state.jobs[1].exit_code) == (S.COMPLETED, 0)
    assert cluster.job(1, 2).attempt == 2


def test_cancelled_elements_that_never_started_can_be_requeued() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-3")
    cluster.do(ev.CancelRequested(1, "ann", "2-3"))
    cluster.do(ev.RequeueRequested(1, "ann", "3"))
    cluster.run_all()
    assert (cluster.array().completed, cluster.array().dropped) == ("0-1,3", "2")


def test_elements_that_are_requeued_and_held_wait_for_their_release() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-3")
    cluster.run_all(codes={1: 1})
    cluster.do(ev.RequeueRequested(1, "ann", "1", hold=True))
    assert (cluster.job(1, 1).state, cluster.job(1, 1).held) == (S.PENDING, True)
    other = Cluster(cpus=1)
    other.submit("0-3")
    other.do(ev.CancelRequested(1, "ann", "2-3"))
    other.do(ev.RequeueRequested(1, "ann", "3", hold=True))
    assert (other.array().held, other.array().dropped) == ("3", "2")


def test_elements_that_have_left_memory_can_be_requeued() -> None:
    cluster = Cluster()
    cluster.submit("0-1")
    cluster.run_all(codes={1: 1})
    ended = tuple(cluster.state.jobs.values())
    for job in reversed(ended):
        cluster.state.forget(job)
    assert not cluster.state.jobs
    cluster.do(ev.JobsRecalled(ended), ev.RequeueRequested(1, "ann", failed=True))
    assert cluster.running() == [1]


def test_an_array_stays_in_memory_as_long_as_one_of_its_elements() -> None:
    cluster = Cluster()
    cluster.submit("0-3")
    cluster.run_all()
    for left in (3, 2):
        cluster.state.forget_finished(over=0)
        assert (len(cluster.state.jobs), 1 in cluster.state.jobs) == (left, True)
        validate_state(cluster.state)


def test_a_state_read_from_the_store_is_the_same() -> None:
    cluster = Cluster(cpus=3)
    cluster.submit("0-9%3")
    cluster.end(cluster.job(1, 0))
    cluster.do(ev.RequeueRequested(1, "ann", "1"))
    state = cluster.state
    jobs = sorted(state.jobs.values(), key=lambda job: job.id)
    again = rebuild(jobs, state.hosts.values(), (), {}, state.next_job, state.next_action, 500)
    assert again.elements == state.elements
    assert again.jobs == state.jobs
    assert all(job.spec is again.jobs[1].spec for job in again.jobs.values())


def test_a_job_that_waits_for_an_array_waits_for_all_its_elements() -> None:
    cluster = Cluster()
    cluster.submit("0-2")
    cluster.do(ev.JobSubmitted(10, builders.spec(dependency="afterok:1")))
    cluster.end(cluster.job(1, 0))
    cluster.end(cluster.job(1, 1))
    assert cluster.state.jobs[10].state is S.PENDING
    cluster.end(cluster.job(1, 2))
    assert cluster.state.jobs[10].state is S.CONFIGURING


def test_an_array_whose_dependency_can_never_be_fulfilled_is_cancelled_whole() -> None:
    cluster = Cluster()
    cluster.do(ev.JobSubmitted(1, builders.spec()))
    cluster.submit("0-99", 2, dependency="afterok:1")
    cluster.end(cluster.state.jobs[1], 1)
    array = cluster.state.jobs[2]
    assert (array.state, array.ref) == (S.CANCELLED, "2_[0-99]")
    assert array.reason is not None
    assert array.reason.code is ReasonCode.DEPENDENCY_NEVER


def test_under_singleton_one_element_runs_after_the_other() -> None:
    cluster = Cluster(cpus=4)
    cluster.submit("0-2", dependency="singleton")
    for task in range(3):
        assert cluster.running() == [task]
        cluster.end(cluster.job(1, task))
    assert cluster.state.jobs[1].state is S.COMPLETED


def test_a_requeued_element_under_singleton_stays_before_the_jobs_that_wait_for_its_array() -> None:
    """They were submitted after the array, and before the element got its id."""
    cluster = Cluster(cpus=4)
    cluster.submit("0-1", dependency="singleton", name="a")
    after = cluster.submit("", dependency="afterany:1", name="a")
    cluster.end(cluster.job(1, 0))
    last = cluster.job(1, 1)
    assert last.id > after
    cluster.do(ev.TasksLost(last.id, 1, "h1", (0,)))
    assert cluster.running() == [1]
    cluster.end(cluster.job(1, 1))
    assert cluster.state.jobs[after].state is S.CONFIGURING


def test_elements_may_be_gangs() -> None:
    cluster = Cluster(hosts=2, cpus=1)
    cluster.submit("0-1", ntasks=2, hosts_min=2, hosts_max=2)
    gang = cluster.job(1, 0)
    assert gang.placement is not None
    assert gang.placement.hosts == ("h1", "h2")
    cluster.run_all()
    assert cluster.state.jobs[1].state is S.COMPLETED


def test_an_array_and_the_jobs_behind_it_keep_their_order() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-1")
    cluster.do(ev.JobSubmitted(20, builders.spec()))
    cluster.end(cluster.job(1, 0))
    assert cluster.running() == [1]
    cluster.end(cluster.job(1, 1))
    assert cluster.state.jobs[20].state is S.CONFIGURING


def test_a_large_array_does_not_make_a_pass_longer() -> None:
    """A pass looks at as many elements as it places, and at one more."""
    looked: list[int] = []
    cluster = Cluster(cpus=4)
    place = cluster.cycle.policies.placement.candidates

    class Counting:
        name = "counting"

        def candidates(self, request, snapshot, explain=False):  # type: ignore[no-untyped-def]
            looked.append(1)
            return place(request, snapshot, explain)

    cluster.cycle.policies = Policies(cluster.cycle.policies.queue, Counting(), cluster.cycle.policies.comm)
    cluster.submit("0-99999")
    assert len(looked) == 4 + 1


def test_elements_of_one_pass_share_the_licences_of_the_cluster() -> None:
    cluster = Cluster(cpus=4)
    cluster.state.licenses = {"solver": 2}
    cluster.submit("0-3", licenses="solver:1")
    assert cluster.running() == [0, 1]
    cluster.run_all()
    assert cluster.state.jobs[1].state is S.COMPLETED


def test_the_end_of_an_element_reads_and_writes_little_of_long_irregular_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where each element may fail, the lists of a large array are of hundreds of kilobytes."""
    cluster = Cluster()
    array = cluster.submit("0-99999%2")
    record = cluster.state.jobs[array]
    completed = sum(1 << n for n in range(10, 90_000) if n % 7 % 3)
    failed = ((1 << 90_000) - (1 << 10)) & ~completed
    waiting = mask_of(record, "waiting") & ~completed & ~failed
    sets = Array(text_of(waiting), "", "", "0-1", text_of(completed), text_of(failed), limit=2)
    cluster.state.jobs[array] = replace(record, array=sets)
    cluster.end(cluster.job(array, 0))  # what is written by blocks is known from here on
    read: list[str] = []
    parts = arrays._parts
    monkeypatch.setattr(arrays, "_parts", lambda text, listed: read.append(text) or parts(text, listed))
    written = arrays._block.cache_info().misses
    cluster.end(cluster.job(array, 1), code=1)
    assert not [text for text in read if len(text) > 1_000]
    assert arrays._block.cache_info().misses - written < 20
    assert mask_of(cluster.state.jobs[array], "failed") == failed | 1 << 1
    longer = arrays.mask(cluster.array(array).failed + ",99999")  # which nobody has read before
    assert longer == failed | 1 << 1 | 1 << 99_999


def mask_of(record: Job, name: str) -> int:
    assert record.array is not None
    return record.array.has(name)


def test_a_set_that_is_too_large_to_be_kept_is_read_again_after_a_move() -> None:
    far = 100_000  # whose text is far shorter than its bits
    before = Array(waiting=f"0-{far}")
    assert (before.has("running"), before.has("waiting")) == (0, (1 << far + 1) - 1)
    after = before.moved(1 << far, "running")
    assert (after.has("running"), after.has("waiting")) == (1 << far, (1 << far) - 1)
    assert (after.running, after.waiting) == (str(far), f"0-{far - 1}")


def test_the_ends_of_a_turn_look_once_for_who_waits_behind_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an array that was requeued, 100,000 may wait as jobs of their own."""
    cluster = Cluster(cpus=8)
    array = cluster.submit("0-11%4")
    while cluster.running(array):
        for task in cluster.running(array):
            cluster.end(cluster.job(array, task), code=1)
    cluster.do(ev.RequeueRequested(array, "alice"))
    running = [cluster.job(array, task) for task in cluster.running(array)]
    enqueued: list[int] = []
    enqueue = ClusterState.enqueue
    monkeypatch.setattr(
        ClusterState, "enqueue", lambda state, job: enqueued.append(job) or enqueue(state, job)
    )
    for _ in range(2):
        enqueued.clear()
        cluster.do(*(ev.TaskExited(job.id, job.attempt, "h1", 0, 0, 0, 5, 6) for job in running))
        assert len(running) == 4
        assert len(enqueued) == len(set(enqueued))
        running = [cluster.job(array, task) for task in cluster.running(array)]
    assert len(running) == 4
