"""`rmx set` in the pure core: what changes of a job after its submission, and what does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import SetLimit
from rm.core.jobs.dependents import Dependents
from rm.core.jobs.handlers import circles, updating
from rm.core.jobs.state import rebuild
from rm.core.model.asked.dependency import Standing
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.scheduling import engine
from rm.web.answers import job_of
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


def element(array: int, tasks: str, first_job: int = 0, **fields: Any) -> ev.JobUpdated:
    return ev.JobUpdated(array, "ann", JobUpdate(**fields), array_tasks=tasks, first_job=first_job)


def test_an_element_that_waits_leaves_its_array_with_what_is_changed_of_it_alone() -> None:
    cluster = Cluster(queue="priority")
    running = single(cluster, cpus_per_task=2)
    array = cluster.submit("0-4", cpus_per_task=2, time_limit_us=10 * MINUTE_US)
    cluster.do(ev.HoldRequested(array, "ann", "1"))
    first = cluster.state.next_job
    cluster.do(element(array, "1,3", first, time_limit_us=5 * MINUTE_US, priority=5))
    assert cluster.state.jobs[array].ref == f"{array}_[0-4:2]"
    assert [cluster.job(array, task).id for task in (1, 3)] == [first, first + 1]
    assert [cluster.job(array, task).held for task in (1, 3)] == [True, False]
    cluster.do(element(array, "3", 99, comment="mine"))
    third = cluster.job(array, 3)
    assert (third.spec.time_limit_us, third.spec.comment, third.spec.priority) == (5 * MINUTE_US, "mine", 5)
    assert cluster.state.jobs[array].spec.time_limit_us == 10 * MINUTE_US
    cluster.end(cluster.state.jobs[running])
    assert cluster.running(array) == [3]
    cluster.do(ev.ReleaseRequested(array, "ann", "1"))
    cluster.run_all(array)
    assert cluster.array(array).completed == "0-4"


def test_what_was_changed_of_an_element_outlasts_a_restart() -> None:
    cluster = Cluster()
    single(cluster, cpus_per_task=2)
    array = cluster.submit("0-4", time_limit_us=10 * MINUTE_US)
    cluster.do(element(array, "2", cluster.state.next_job, time_limit_us=0, hosts_only=("h1",)))
    old = cluster.state
    shared = old.jobs[array].spec  # as the store reads the rows of elements
    jobs = [replace(job, spec=shared) if job.array_job else job for job in old.jobs.values()]
    again = rebuild(jobs, old.hosts.values(), (), {}, old.next_job, old.next_action, cluster.now_us)
    spec = again.jobs[again.elements[array][2]].spec
    assert (spec.time_limit_us, spec.hosts_only) == (None, ("h1",))
    assert again.jobs == old.jobs


def test_a_change_of_the_array_replaces_the_same_of_its_elements_alone() -> None:
    cluster = Cluster()
    running = single(cluster, cpus_per_task=2)
    array = cluster.submit("0-2", time_limit_us=10 * MINUTE_US)
    cluster.do(element(array, "1", cluster.state.next_job, time_limit_us=MINUTE_US, comment="mine"))
    cluster.do(change(array, time_limit_us=2 * MINUTE_US, dependency=f"afterok:{running}"))
    spec = cluster.job(array, 1).spec
    assert (spec.time_limit_us, spec.comment) == (2 * MINUTE_US, "mine")
    assert cluster.job(array, 1).own == JobUpdate(comment="mine")
    assert cluster.state.jobs[cluster.job(array, 1).id].dependencies[0].job == running
    cluster.end(cluster.state.jobs[running], code=1)
    assert cluster.job(array, 1).state is S.CANCELLED
    assert cluster.state.jobs[array].state is S.CANCELLED


def test_an_element_that_has_ended_keeps_the_dependency_that_it_had() -> None:
    cluster = Cluster()
    running = single(cluster, cpus_per_task=2)
    other = single(cluster, cpus_per_task=2)
    array = cluster.submit("0-2", dependency=f"afterany:{other}")
    cluster.do(element(array, "1", cluster.state.next_job, dependency=f"afterok:{running}", comment="mine"))
    cluster.end(cluster.state.jobs[running], code=1)
    assert cluster.job(array, 1).state is S.CANCELLED
    for text in ("", "singleton", ""):
        cluster.do(change(array, dependency=text, comment="theirs"))
        assert cluster.state.jobs[array].spec.dependency == text
        ended = cluster.job(array, 1)
        assert (ended.spec.dependency, ended.spec.comment) == (f"afterok:{running}", "theirs")
    assert ended.own == JobUpdate(dependency=f"afterok:{running}")  # so that the store has it


def test_an_element_that_runs_may_get_another_time_limit() -> None:
    cluster = Cluster()
    array = cluster.submit("0-3", time_limit_us=10 * MINUTE_US)
    runs = cluster.job(array, 0)
    out = cluster.do(element(array, "0,3", cluster.state.next_job, time_limit_us=MINUTE_US))
    assert [i.action for i in out.intents] == [SetLimit(runs.id, 1, "h1", MINUTE_US)]
    assert cluster.job(array, 3).spec.time_limit_us == MINUTE_US
    assert cluster.job(array, 1).spec.time_limit_us == 10 * MINUTE_US
    assert "cannot change any more" in cluster.refused(element(array, "0", cpus_per_task=2))
    cluster.run_all(array)
    assert "has ended already" in cluster.refused(element(array, "1-2", comment="late"))
    assert "has no element 7" in cluster.refused(element(array, "7", comment="c"))


def test_elements_of_one_array_may_wait_for_each_other_and_not_for_themselves() -> None:
    cluster = Cluster(cpus=2)
    running = single(cluster, cpus_per_task=2)
    array = cluster.submit("0-2")
    cluster.do(element(array, "1", cluster.state.next_job, dependency=f"afterok:{array}_0"))
    for tasks, on in (("0", "1"), ("0", "0"), ("2", "")):
        text = f"afterany:{array}_{on}" if on else f"afterany:{array}"
        said = cluster.refused(element(array, tasks, cluster.state.next_job, dependency=text))
        assert "would wait for itself" in said
    cluster.end(cluster.state.jobs[running])
    assert cluster.running(array) == [0, 2]
    cluster.end(cluster.job(array, 0))
    assert cluster.running(array) == [1, 2]


def test_an_array_gets_other_dependencies_before_it_has_begun() -> None:
    cluster = Cluster()
    running = single(cluster, cpus_per_task=2)
    array = cluster.submit("0-3")
    cluster.do(change(array, dependency=f"afternotok:{running}"))
    cluster.end(cluster.state.jobs[running], code=1)
    assert cluster.running(array) == [0, 1]


def test_a_damaged_change_is_no_job() -> None:
    cluster = Cluster()
    assert "Job 9 is not known" in cluster.refused(change(9, comment="c"))
    single(cluster, cpus_per_task=2)
    job = single(cluster)
    assert "must be one line of text" in cluster.refused(change(job, name="a\nb"))
    assert cluster.state.jobs[job].spec == builders.spec()


def test_an_array_whose_elements_all_wait_as_jobs_of_their_own_is_shown_to_pend() -> None:
    cluster = Cluster()
    running = single(cluster, cpus_per_task=2)
    array = cluster.submit("1-2", cpus_per_task=2)
    cluster.do(element(array, "1-2", cluster.state.next_job, comment="mine"))

    def seen() -> tuple[str, str]:
        told = job_of(cluster.state.jobs[array])
        return told.state, told.short_state

    assert (cluster.array(array).waiting, seen()) == ("", ("PENDING", "PD"))
    cluster.end(cluster.state.jobs[running])
    assert (cluster.running(array), seen()) == ([1], ("RUNNING", "R"))
    cluster.end(cluster.job(array, 1))
    cluster.end(cluster.job(array, 2))
    assert seen() == ("COMPLETED", "CD")


def test_dependencies_change_in_short_time_however_many_jobs_have_one_name() -> None:
    """A user's thousand singletons must not keep the leader from everybody else's requests."""
    cluster = Cluster()
    first = single(cluster, hold=True)
    jobs = [single(cluster, name="one", dependency="singleton", hold=True) for _ in range(1_000)]
    looked = Counter[str]()

    class Jobs(dict[int, Any]):
        def __getitem__(self, job: int) -> Any:
            looked["jobs"] += 1
            return super().__getitem__(job)

    cluster.state.jobs = Jobs(cluster.state.jobs)
    cluster.do(change(jobs[-1], dependency=f"singleton,afterany:{first}"))
    assert len(cluster.state.jobs[jobs[-1]].dependencies) == 2
    assert looked["jobs"] < 20 * len(jobs)  # each for each would be a hundred times as often
    cluster.do(change(jobs[-2], dependency="singleton"))  # the only way back to the first is by the last one
    assert "would wait for itself" in cluster.refused(change(first, dependency=f"afterok:{jobs[-1]}"))


def test_a_circle_by_way_of_an_element_is_found_and_searched_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    array = cluster.submit("0-9", hold=True)
    cluster.do(element(array, "0-7", first_job=cluster.state.next_job, comment="c"))
    waits = single(cluster, dependency=f"afterok:{array}_5", hold=True)
    own = cluster.state.elements[array]
    also = single(cluster, dependency=f"afterok:{own[6]}", hold=True)
    for circle in (waits, also):
        assert "would wait for itself" in cluster.refused(change(array, dependency=f"afterok:{circle}"))
        assert "would wait for itself" in cluster.refused(change(own[6], dependency=f"afterok:{also}"))
    searches: list[int] = []
    search = updating.refuse_circle
    monkeypatch.setattr(
        updating, "refuse_circle", lambda state, job: (searches.append(job.id), search(state, job))[1]
    )
    other = single(cluster, hold=True)
    cluster.do(change(array, dependency=f"afterok:{other}"))
    assert searches == [array]
    assert all(cluster.state.jobs[job].depends is Standing.UNFULFILLED for job in (array, *own.values()))


def test_a_circle_by_the_dependencies_of_singletons_is_found() -> None:
    cluster = Cluster()
    first, second, third = (
        single(cluster, name=name, dependency="singleton", hold=True) for name in ("a", "b", "a")
    )
    cluster.do(change(second, dependency=f"afterok:{third}"))
    assert "would wait for itself" in cluster.refused(change(first, dependency=f"afterok:{second}"))
    cluster.do(change(first, name="c"))
    cluster.do(change(first, dependency=f"afterok:{second}"))


def test_where_a_job_would_wait_for_very_many_nobody_tells_whether_for_itself_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(circles, "CONDITIONS_MAX", 100)
    cluster = Cluster()
    jobs = [single(cluster, hold=True)]
    for _ in range(20):
        jobs.append(single(cluster, hold=True, dependency=":".join(["afterok", *map(str, jobs)])))
    cluster.do(change(jobs[10], dependency=f"afterok:{jobs[5]}"))
    said = cluster.refused(change(jobs[10], dependency=f"afterok:{jobs[20]}"))
    assert "more than 100 dependencies" in said


def test_a_change_of_one_list_leaves_what_others_wait_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs that wait must not be gone through for each."""
    cluster = Cluster(hosts=1)
    first, second = single(cluster, hold=True), single(cluster, hold=True)
    waits, others = (
        single(cluster, dependency=f"afterany:{first}"),
        [single(cluster, dependency=f"afterany:{first}") for _ in range(20)],
    )
    watched: list[int] = []
    watch = Dependents.watch
    monkeypatch.setattr(Dependents, "watch", lambda own, job: (watched.append(job.id), watch(own, job))[1])
    cluster.do(change(waits, dependency=f"afterany:{second}"))
    assert set(watched) == {waits}
    cluster.do(ev.CancelRequested(first, "ann"))
    assert all(cluster.state.jobs[job].depends is Standing.FULFILLED for job in others)
    assert cluster.state.jobs[waits].depends is Standing.UNFULFILLED
    cluster.do(ev.CancelRequested(second, "ann"))
    assert cluster.state.jobs[waits].depends is Standing.FULFILLED


def test_who_leaves_a_name_lets_the_next_singleton_of_it_start() -> None:
    cluster = Cluster()
    first, second = (single(cluster, name="a", dependency="singleton", hold=True) for _ in range(2))
    assert cluster.state.jobs[second].depends is Standing.UNFULFILLED
    cluster.do(change(first, dependency=""))
    assert cluster.state.jobs[second].depends is Standing.UNFULFILLED  # it is there still
    cluster.do(change(first, name="b"))
    assert cluster.state.jobs[second].depends is Standing.FULFILLED
    cluster.do(change(first, name="a"))
    assert cluster.state.jobs[second].depends is Standing.UNFULFILLED


def test_a_change_lets_no_other_job_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of a user's jobs that all ask for something else must not keep the leader at each change."""
    cluster = Cluster(hosts=1)
    single(cluster)
    waits = [single(cluster, cpus_per_task=2, mem_bytes_per_task=1_000 + n) for n in range(30)]
    tried: list[str] = []
    place = engine.place

    def noted(job: Job, *more: Any) -> Any:
        tried.append(job.ref)
        return place(job, *more)

    monkeypatch.setattr(engine, "place", noted)
    cluster.do(change(waits[0], nice=5))
    cluster.do(change(waits[3], mem_bytes_per_task=500))
    assert tried == [str(waits[0]), str(waits[3])]
    reason = cluster.cycle.reason_of(cluster.state.jobs[waits[3]])
    assert reason is not None
    assert reason.code is ReasonCode.RESOURCES


def test_who_asks_for_something_else_keeps_nobody_who_asked_for_the_same() -> None:
    cluster = Cluster(hosts=1)
    first, second = single(cluster), single(cluster)
    larger, other = single(cluster), single(cluster)
    cluster.do(change(larger, cpus_per_task=2))
    assert cluster.state.jobs[second].state is S.CONFIGURING
    cluster.end(cluster.state.jobs[first])
    assert cluster.state.jobs[larger].state is S.PENDING
    assert cluster.state.jobs[other].state is S.CONFIGURING


@pytest.mark.parametrize("fields", [{"nice": 100}, {"hosts_only": ("h1", "h3")}, {"begin_us": 10**12}])
def test_a_job_for_which_others_were_kept_back_lets_them_go_when_it_changes(fields: dict[str, Any]) -> None:
    cluster = Cluster(hosts=2, queue="backfill")
    runs = single(cluster, cpus_per_task=2, time_limit_us=10 * MINUTE_US, hosts_only=("h1",))
    first = single(cluster, cpus_per_task=2, ntasks=2, hosts_min=2, time_limit_us=10 * MINUTE_US)
    behind = single(cluster, cpus_per_task=2, time_limit_us=60 * MINUTE_US, hosts_only=("h2",))
    later = single(cluster, cpus_per_task=2, time_limit_us=50 * MINUTE_US, hosts_only=("h2",))
    assert cluster.state.jobs[runs].state is S.CONFIGURING
    assert {cluster.state.jobs[job].state for job in (first, behind, later)} == {S.PENDING}
    cluster.do(change(first, **fields))
    for _ in range(3):
        cluster.do()
    going = [job for job in (first, behind, later) if cluster.state.jobs[job].state is S.CONFIGURING]
    assert going == [behind]
