"""Dependencies between elements of job arrays: `aftercorr`, and conditions on some elements of an array."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.arrays import each
from rm.core.jobs import events as ev
from rm.core.jobs.chain import Link, chain_of
from rm.core.jobs.dependents import PastJob
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import rebuild
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.array import SETS
from rm.core.model.asked.dependency import Standing, free_elements, lost_elements
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.dependencies import AFTER, AFTERANY, AFTERCORR, AFTERNOTOK, AFTEROK, Condition, parse
from rm.units import MINUTE_US
from tests import builders
from tests.examples import examples
from tests.invariants import validate_state
from tests.unit.test_job_arrays import Cluster

S = JobState


def reason_of(cluster: Cluster, job: int) -> Reason:
    reason = cluster.cycle.reason_of(cluster.state.jobs[job])
    assert reason is not None
    return reason


def dependency(cluster: Cluster, job: int) -> str:
    return " ".join(f"{one}({one.standing})" for one in cluster.state.jobs[job].dependencies)


def test_each_element_starts_when_the_one_of_its_index_has_completed() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-2")
    second = cluster.submit("0-2", dependency=f"aftercorr:{first}")
    assert str(reason_of(cluster, second)) == f"(Dependency) waits for aftercorr:{first}"
    cluster.end(cluster.job(first, 1))
    assert cluster.running(second) == [1]
    assert dependency(cluster, cluster.job(second, 1).id) == f"aftercorr:{first}_1(fulfilled)"
    cluster.end(cluster.job(first, 0))
    cluster.end(cluster.job(first, 2))
    assert cluster.running(second) == [0, 1, 2]
    assert dependency(cluster, second) == f"aftercorr:{first}(fulfilled)"
    cluster.run_all(second)
    assert cluster.state.jobs[second].state is S.COMPLETED
    assert not cluster.state.dependents.awaited


def test_an_element_whose_counterpart_fails_is_cancelled_and_the_others_go_on() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-2")
    second = cluster.submit("0-2", dependency=f"aftercorr:{first}")
    cluster.run_all(first, {1: 3})
    assert cluster.array(second).dropped == "1"
    assert cluster.running(second) == [0, 2]
    said = (
        f"aftercorr:{first} will never be fulfilled: elements 1 of job {first} did not complete: elements 1"
    )
    assert said in [what for _, what in cluster.state.jobs[second].history]
    cluster.run_all(second)
    assert cluster.state.jobs[second].state is S.CANCELLED


def test_an_element_that_can_never_start_is_kept_where_that_is_asked_for() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-1")
    second = cluster.submit("0-1", dependency=f"aftercorr:{first}", kill_on_invalid_dep=False)
    cluster.run_all(first, {1: 3})
    cluster.run_all(second)
    assert cluster.array(second).waiting == "1"
    assert reason_of(cluster, second).code is ReasonCode.DEPENDENCY_NEVER
    cluster.do(ev.RequeueRequested(first, "ann", failed=True))
    assert reason_of(cluster, second).code is ReasonCode.DEPENDENCY
    cluster.run_all(first)
    assert cluster.running(second) == [1]


def test_an_element_that_is_requeued_does_not_wait_for_its_counterpart_again() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-1")
    second = cluster.submit("0-1", dependency=f"aftercorr:{first}")
    cluster.end(cluster.job(first, 0))
    cluster.do(ev.RequeueRequested(first, "ann", "0"), ev.HoldRequested(first, "ann", "0"))
    assert cluster.running(second) == [0]
    cluster.do(ev.RequeueRequested(second, "ann", "0"))
    cluster.end(cluster.job(second, 0))
    assert (cluster.running(second), cluster.job(second, 0).attempt) == ([0], 2)


def test_held_elements_are_named_where_nothing_else_keeps_them() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-1")
    second = cluster.submit("0-1", dependency=f"aftercorr:{first}")
    cluster.do(ev.HoldRequested(second, "ann", "0"))
    cluster.end(cluster.job(first, 0))
    assert reason_of(cluster, second).code is ReasonCode.HELD_USER
    cluster.do(ev.ReleaseRequested(second, "ann"))
    assert cluster.running(second) == [0]


def test_a_single_job_with_aftercorr_waits_for_the_whole_array() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-1")
    cluster.do(ev.JobSubmitted(20, builders.spec(dependency=f"aftercorr:{first}")))
    cluster.end(cluster.job(first, 0))
    assert cluster.state.jobs[20].state is S.PENDING
    cluster.end(cluster.job(first, 1))
    assert cluster.state.jobs[20].state is S.CONFIGURING


@pytest.mark.parametrize(
    ("condition", "codes", "then"),
    [
        ("afterok:1_4", {4: 0}, S.CONFIGURING),
        ("afterok:1_4", {4: 1}, S.CANCELLED),
        ("afterok:1_[4-5]", {4: 0}, S.PENDING),
        ("afterok:1_[4-5]", {4: 0, 5: 0}, S.CONFIGURING),
        ("afterok:1_[4-5]", {4: 0, 5: 1}, S.CANCELLED),
        ("afternotok:1_[4-5]", {4: 0, 5: 1}, S.CONFIGURING),
        ("afternotok:1_[4-5]", {4: 0, 5: 0}, S.CANCELLED),
        ("afterany:1_5", {4: 0}, S.PENDING),
        ("afterany:1_5", {5: 9}, S.CONFIGURING),
        ("after:1_5", {}, S.CONFIGURING),
        ("after:1_8", {4: 0}, S.PENDING),
        ("afterok:1_4?afterok:1_5", {4: 1, 5: 0}, S.CONFIGURING),
    ],
)
def test_the_end_of_the_elements_that_it_names_decides(
    condition: str, codes: dict[int, int], then: JobState
) -> None:
    cluster = Cluster(cpus=4)
    cluster.submit("3-8%3")
    cluster.do(ev.JobSubmitted(20, builders.spec(dependency=condition)))
    for task, code in codes.items():
        cluster.end(cluster.job(1, task), code)
    job = cluster.state.jobs[20]
    assert job.state is then
    if then is S.CANCELLED:
        assert job.reason is not None
        assert f"job {condition.partition(':')[2]} ended" in job.reason.message


def test_the_delay_after_the_start_of_an_element_counts_from_its_placement() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-1")
    cluster.do(ev.JobSubmitted(20, builders.spec(dependency="after:1_1+1")))
    cluster.end(cluster.job(1, 0))
    started_us = cluster.now_us
    cluster.end(cluster.job(1, 1))
    assert cluster.state.jobs[20].begin_us == started_us + MINUTE_US
    cluster.now_us = started_us + MINUTE_US
    cluster.do(ev.Tick())
    assert cluster.state.jobs[20].state is S.CONFIGURING


def test_the_delay_after_elements_that_have_started_counts_from_the_last_start() -> None:
    cluster = Cluster(cpus=2)
    first = cluster.submit("0-3")
    for task in (0, 1):
        element = cluster.job(first, task)
        cluster.do(ev.TasksStarted(element.id, 1, "h1", cluster.now_us + 10, (0,)))
    last_us = cluster.job(first, 1).started_us
    assert last_us is not None
    assert last_us > (cluster.job(first, 0).started_us or 0)
    cluster.now_us += MINUTE_US // 2
    cluster.do(ev.JobSubmitted(20, builders.spec(dependency=f"after:{first}_[0-1]+1")))
    assert cluster.state.jobs[20].begin_us == last_us + MINUTE_US


def test_a_condition_knows_that_it_names_an_array() -> None:
    cluster = Cluster(cpus=4)
    first, single = cluster.submit("0-2"), cluster.submit("0", hold=True)
    cluster.do(ev.JobSubmitted(90, builders.spec(hold=True)))
    waits = cluster.submit("0", dependency=f"afterany:{first},afterok:{single},after:90")
    assert [one.array for one in cluster.state.jobs[waits].dependencies] == [True, True, False]


def test_an_array_of_the_past_decides_at_the_submission() -> None:
    cluster = Cluster(cpus=4)
    first = cluster.submit("0-3")
    cluster.run_all(first, {2: 1})
    cluster.do(ev.CancelRequested(cluster.submit("0", hold=True), "ann"))
    past = (PastJob.of(cluster.state.jobs[first]),)
    for job in sorted(cluster.state.jobs.values(), key=lambda job: -job.id):
        cluster.state.forget(job)

    def submit(job: int, condition: str, array: str = "") -> Job:
        spec = builders.spec(dependency=f"{condition}:{first}", array=array)
        if condition == "afterok":
            spec = replace(spec, dependency=f"afterok:{first}_[0-1]")
        cluster.do(ev.JobSubmitted(job, spec, "", past))
        return cluster.state.jobs[job]

    assert submit(20, "afterok").state is S.CONFIGURING
    assert submit(21, "aftercorr").state is S.CANCELLED
    submit(30, "aftercorr", "1-3")
    assert (cluster.running(30), cluster.array(30).dropped) == ([1, 3], "2")


def test_the_chain_names_the_elements_and_their_state() -> None:
    cluster = Cluster(cpus=1)
    cluster.submit("0-1")
    cluster.do(ev.JobSubmitted(20, builders.spec(dependency="afterok:1_0,afterany:1_1", name="next")))
    links = chain_of(cluster.state.jobs[20], cluster.state.jobs).links
    assert links == (
        Link(20, "afterok", 1, Standing.UNFULFILLED, S.RUNNING, "job", "0"),
        Link(20, "afterany", 1, Standing.UNFULFILLED, S.PENDING, "job", "1"),
    )


# -- against brute force

KINDS = [AFTEROK, AFTERNOTOK, AFTERANY, AFTER]
DEEDS = ["submit", "submit", "end", "end", "fail", "cancel", "requeue", "lose", "hold", "release", "restart"]
STEPS = st.lists(
    st.tuples(st.sampled_from([*DEEDS, "forget"]), st.integers(0, 1 << 30)), min_size=8, max_size=50
)
WAITS, RUNS, WELL, BADLY = "waits", "runs", "ended well", "ended badly"
STATUS = {"waiting": WAITS, "requeued": WAITS, "running": RUNS, "completed": WELL}


class Model:
    """What may start and what never may, by looking at all elements after each event and at nothing else."""

    def __init__(self) -> None:
        self.met: set[tuple[int, int, int]] = set()  # job, place in its list, element
        self.elements: dict[int, dict[int, str]] = {}  # of each array there was

    def look(self, cluster: Cluster, new: set[tuple[int, int]]) -> None:
        """`new` were placed after the event."""
        jobs = cluster.state.jobs
        for job in jobs.values():
            if job.array is not None:
                status = {t: STATUS.get(name, BADLY) for name in SETS for t in each(job.array.has(name))}
                self.elements[job.id] = status | {t: WAITS for j, t in new if j == job.id}
        for job in jobs.values():
            elements = cluster.state.elements.get(job.id, {})
            started = {t for t in elements if (job.id, t) not in new}
            if (
                job.array is not None
                and not job.state.final
                and WAITS in (status for t, status in self.elements[job.id].items() if t not in started)
            ):
                for place, one in enumerate(parse(job.spec.dependency).of):
                    self.met |= {(job.id, place, t) for t in self.elements[job.id] if self.is_met(one, t)}

    def named(self, one: Condition, task: int) -> list[str]:
        elements = self.elements[one.job]
        if one.kind == AFTERCORR:
            return [elements[task]]
        return [elements[int(t)] for t in one.tasks.split(",")] if one.tasks else list(elements.values())

    def is_met(self, one: Condition, task: int) -> bool:
        named = self.named(one, task)
        over, well = all(s in (WELL, BADLY) for s in named), all(s == WELL for s in named)
        if one.kind == AFTER:
            return WAITS not in named
        return {AFTEROK: well, AFTERCORR: well, AFTERNOTOK: over and not well, AFTERANY: over}[one.kind]

    def judge(self, job: Job, task: int) -> Standing:
        asked = parse(job.spec.dependency)
        met = [(job.id, place, task) in self.met for place in range(len(asked.of))]
        over = [all(s in (WELL, BADLY) for s in self.named(one, task)) for one in asked.of]
        never = [ended and not is_met for ended, is_met in zip(over, met, strict=True)]
        some = any if asked.any_of else all
        if not asked.of or some(met):
            return Standing.FULFILLED
        return Standing.FAILED if (all(never) if asked.any_of else any(never)) else Standing.UNFULFILLED


def condition_from(number: int, arrays: list[int]) -> str:
    if not arrays or number % 5 == 0:
        return ""

    def one(bits: int) -> str:
        job = arrays[bits % len(arrays)]
        kind = KINDS[bits // 7 % 4]
        if bits // 3 % 3 == 0:
            return f"aftercorr:{job}"
        if kind == AFTER or bits // 11 % 2:
            return f"{kind}:{job}_{['0', '2', '[0,3]'][bits // 5 % 3]}"
        return f"{kind}:{job}"

    return one(number // 5) + ["", "," + one(number // 71), "?" + one(number // 71)][number // 13 % 3]


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, st.booleans())
def test_what_may_start_and_what_never_may_are_as_brute_force_has_it(
    steps: list[tuple[str, int]], cancel_never: bool
) -> None:
    cluster, model = Cluster(cpus=3), Model()
    cluster.cycle.rules = Rules(grace_us=5, cancel_never=cancel_never)
    past: dict[int, PastJob] = {}
    for what, number in steps:
        state = cluster.state
        occupied = {(j.array_job, j.array_task) for j in state.jobs.values() if j.occupies}
        running = [state.jobs[job] for job in sorted(state.placed)]
        arrays = sorted(model.elements)
        alive = [array for array in arrays if array in state.jobs]
        one = alive[number % len(alive)] if alive else 0
        task = str(number // 17 % 4)
        match what:
            case "submit":
                spec = builders.spec(array="0-3", dependency=condition_from(number, arrays))
                cluster.do(ev.JobSubmitted(state.next_job, spec, "", tuple(past.values())))
            case "end" | "fail" if running:
                cluster.end(running[number % len(running)], int(what == "fail"))
            case "lose" if running:
                lost = running[number % len(running)]
                cluster.do(ev.TasksLost(lost.id, lost.attempt, "h1", (0,)))
            case "cancel" if alive:
                cluster.do(ev.CancelRequested(one, "ann", task))
            case "requeue" if alive:
                cluster.do(ev.RequeueRequested(one, "ann", task))
            case "hold" if alive:
                cluster.do(ev.HoldRequested(one, "ann", task))
            case "release" if alive:
                cluster.do(ev.ReleaseRequested(one, "ann"))
            case "forget" if alive and state.jobs[one].state.final:
                past[one] = PastJob.of(state.jobs[one])
                for job in [j for j in state.jobs.values() if j.array_job == one]:
                    state.forget(job)
                state.forget(state.jobs[one])
            case "restart":
                jobs, hosts = state.jobs.values(), state.hosts.values()
                again = rebuild(jobs, hosts, (), {}, state.next_job, state.next_action, cluster.now_us)
                cluster.cycle.state = again
                cluster.cycle.start_over(aligned=False)
                cluster.do(ev.HostUp("h1", "boot", "1"))
        check(cluster, model, occupied)


def check(cluster: Cluster, model: Model, occupied: set[tuple[int, int | None]]) -> None:
    state = cluster.state
    placed = [j for j in state.jobs.values() if j.occupies and (j.array_job, j.array_task) not in occupied]
    model.look(cluster, {(j.array_job, j.array_task) for j in placed if j.array_task is not None})
    for job in placed:
        if job.attempt == 1 and job.array_task is not None:
            standing = model.judge(state.jobs[job.array_job], job.array_task)
            assert standing is Standing.FULFILLED, f"{job.ref} started too early: {job.spec.dependency}"
    model.look(cluster, set())
    for job in state.jobs.values():
        if job.array is None or not job.array.waiting:
            continue
        free = free_elements(job.dependencies, job.spec.any_dependency)
        lost = lost_elements(job.dependencies, job.spec.any_dependency)
        for task in each(job.array.has("waiting")):
            standing = model.judge(job, task)
            found = (
                Standing.FULFILLED
                if free >> task & 1
                else Standing.FAILED
                if lost >> task & 1
                else (Standing.UNFULFILLED)
            )
            assert found is standing, (job.ref, task, job.dependencies)
            assert standing is not Standing.FAILED or not cluster.cycle.rules.cancel_never
    for job in state.jobs.values():
        if job.array_task is not None and job.state is S.PENDING:
            assert job.depends is Standing.FULFILLED, f"{job.ref} had started, and waits again"
    again = restore_state(dump_state(state, cluster.now_us), cluster.now_us)
    assert {i: j.dependencies for i, j in again.jobs.items()} == {
        i: j.dependencies for i, j in state.jobs.items()
    }
    validate_state(state)


def test_long_lists_of_elements_are_written_for_few_dependents_in_a_step() -> None:
    """Each dependent array writes a list of up to 100,000 indices anew, which takes milliseconds."""
    cluster = Cluster()
    first = cluster.submit("0-49999", hold=True)
    waiting = [cluster.submit("0-49999", dependency=f"aftercorr:{first}") for _ in range(3)]
    torn = ",".join(str(4 * i + i % 3 // 2) for i in range(12_500))
    cluster.do(ev.CancelRequested(first, "ann", torn))
    written = [bool(cluster.state.jobs[one].dependencies[0].lost) for one in waiting]
    assert written == [True, False, False]
    assert cluster.cycle.next_due_us() == 0
    for _ in waiting:
        cluster.do()
    assert all(cluster.state.jobs[one].dependencies[0].lost for one in waiting)
    assert cluster.cycle.next_due_us() is None
