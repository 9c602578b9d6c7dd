"""Jobs that wait for other jobs: when they may start, when they never may, and what a restart changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import dependents
from rm.core.jobs import events as ev
from rm.core.jobs.chain import LINKS_MAX, Link, chain_of
from rm.core.jobs.dependents import PastJob, named_by
from rm.core.jobs.handlers import dependency
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.dependency import Standing
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import Reason, ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.dependencies import MINUTE_US, parse
from tests import builders
from tests.examples import examples

S = JobState


class Cluster:
    """One host, on which four jobs have room, under the daemon's cycle."""

    def __init__(
        self,
        cancel_never: bool = True,
        cpus: int = 4,
        queue: str = "fifo",
        judged_max: int = Rules().judged_max,
    ) -> None:
        self.queue = queue
        self.rules = Rules(cancel_never=cancel_never, judged_max=judged_max)
        self.now_us = 1_000_000
        self.lead(ClusterState())
        self.do(ev.HostAdded(builders.host("h1", cpus=cpus)), ev.HostUp("h1", "boot", "1"))

    def lead(self, state: ClusterState) -> None:
        policies = Policies(load("queue", self.queue), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(state, policies, self.rules)
        self.do(ev.HostUp("h1", "boot", "1"))

    def restart(self) -> None:
        """Another daemon, which knows what the store has of jobs that have not ended."""
        old = self.cycle.state
        named = named_by(old.jobs.values())
        left = [job for job in old.jobs.values() if not job.state.final or job.id in named]
        hosts = old.hosts.values()
        self.lead(rebuild(left, hosts, old.zones.values(), {}, old.next_job, old.next_action, self.now_us))

    @property
    def jobs(self) -> dict[int, Job]:
        return self.cycle.state.jobs

    def do(self, *events: ev.Event) -> None:
        """And what the clock says then, until there is nothing to do at once."""
        self.cycle.step(events, self.now_us)
        while self.cycle.next_due_us() == 0:
            self.cycle.step((), self.now_us)

    def submit(self, dependency: str = "", past: tuple[PastJob, ...] = (), **spec: object) -> int:
        job_id = self.cycle.state.next_job
        self.do(ev.JobSubmitted(job_id, builders.spec(dependency=dependency, **spec), "", past))  # type: ignore[arg-type]
        return job_id

    def start(self, job: int) -> None:
        self.do(ev.TasksStarted(job, self.jobs[job].attempt, "h1", self.now_us, (0,)))

    def end(self, job: int, code: int = 0) -> None:
        attempt = self.jobs[job].attempt
        self.do(ev.TaskExited(job, attempt, "h1", 0, code, 0, self.now_us, self.now_us))

    def cancel(self, job: int) -> None:
        self.do(ev.CancelRequested(job, "alice"))
        if self.jobs[job].state is S.COMPLETING:
            self.do(
                ev.TaskExited(job, self.jobs[job].attempt, "h1", 0, 0, 15, None, self.now_us, why="cancel")
            )

    def state(self, job: int) -> JobState:
        return self.jobs[job].state

    def reason(self, job: int) -> Reason:
        reason = self.cycle.reason_of(self.jobs[job])
        assert reason is not None
        return reason


ENDS = {"well": 0, "badly": 3}


@pytest.mark.parametrize(
    ("kind", "end", "then"),
    [
        ("afterok", "well", S.CONFIGURING),
        ("afterok", "badly", S.CANCELLED),
        ("afterok", "cancelled", S.CANCELLED),
        ("afternotok", "well", S.CANCELLED),
        ("afternotok", "badly", S.CONFIGURING),
        ("afternotok", "cancelled", S.CONFIGURING),
        ("afterany", "well", S.CONFIGURING),
        ("afterany", "badly", S.CONFIGURING),
        ("afterany", "cancelled", S.CONFIGURING),
    ],
)
def test_the_end_of_the_job_that_it_waits_for_decides(kind: str, end: str, then: JobState) -> None:
    one = Cluster()
    first = one.submit()
    second = one.submit(f"{kind}:{first}")
    one.start(first)
    assert (one.state(second), str(one.reason(second))) == (
        S.PENDING,
        f"(Dependency) waits for {kind}:{first}",
    )
    if end == "cancelled":
        one.cancel(first)
    else:
        one.end(first, ENDS[end])
    assert one.state(second) is then
    if then is S.CANCELLED:
        reason = one.jobs[second].reason
        assert reason is not None
        assert reason.code is ReasonCode.DEPENDENCY_NEVER
        said = f"{kind}:{first} will never be fulfilled: job {first} ended {one.state(first)}"
        assert reason.message == said
        assert one.jobs[second].history[-1] == (one.now_us, f"cancelled: {said}")


@pytest.mark.parametrize("cancelled", [False, True])
def test_after_counts_from_the_start_or_from_a_cancellation_before_it(cancelled: bool) -> None:
    one = Cluster()
    first = one.submit(hold=True)
    second, third = one.submit(f"after:{first}"), one.submit(f"after:{first}+2")
    one.now_us += 5_000_000
    if cancelled:
        one.cancel(first)
    else:
        one.do(ev.ReleaseRequested(first, "alice"))
        one.start(first)
    due_us = one.now_us + 2 * MINUTE_US
    assert one.state(second) is S.CONFIGURING
    assert str(one.reason(third)) == f"(Dependency) after:{first}+2: may not begin for another 120 s"
    assert one.cycle.next_due_us() == due_us
    one.now_us = due_us - 1
    one.do()
    assert one.state(third) is S.PENDING
    one.now_us = due_us
    one.do()
    assert one.state(third) is S.CONFIGURING


def test_a_delay_goes_on_by_a_clock_that_was_set() -> None:
    one = Cluster()
    first = one.submit()
    one.start(first)
    second = one.submit(f"after:{first}+1")
    due_us = one.now_us + MINUTE_US
    one.now_us += 3600 * 1_000_000
    one.do(ev.ClockStepped(3600 * 1_000_000))
    assert one.jobs[second].begin_us == due_us + 3600 * 1_000_000
    assert one.state(second) is S.PENDING


def test_all_conditions_or_one_of_them() -> None:
    one = Cluster()
    a, b = one.submit(), one.submit()
    both, either = one.submit(f"afterok:{a}:{b}"), one.submit(f"afterok:{a}?afterok:{b}")
    one.start(a)
    one.start(b)
    assert str(one.reason(either)) == f"(Dependency) waits for afterok:{a} or afterok:{b}"
    one.end(a, 1)
    assert (one.state(both), one.state(either)) == (S.CANCELLED, S.PENDING)
    one.end(b)
    assert one.state(either) is S.CONFIGURING


def test_of_singletons_the_next_starts_when_none_of_that_name_is_left_before_it() -> None:
    one = Cluster()
    plain = one.submit(name="train")
    waiting = [one.submit("singleton", name="train") for _ in range(3)]
    other, others = one.submit("singleton", name="test"), one.submit("singleton", name="train", user="bob")
    assert [one.state(job) for job in (plain, other, others)] == [S.CONFIGURING] * 3
    assert [one.state(job) for job in waiting] == [S.PENDING] * 3
    assert str(one.reason(waiting[0])) == "(Dependency) waits for singleton"
    one.cancel(waiting[1])
    for before, after in [(plain, waiting[0]), (waiting[0], waiting[2])]:
        one.start(before)
        one.end(before)
        assert one.state(after) is S.CONFIGURING
    one.start(waiting[2])
    one.do(ev.RequeueRequested(plain, "alice"))  # it asks for nothing itself
    assert one.state(plain) is S.CONFIGURING
    one.end(waiting[2])
    one.do(ev.RequeueRequested(waiting[2], "alice"))
    assert one.state(waiting[2]) is S.PENDING


def test_a_singleton_does_not_start_beside_one_of_its_name_that_starts_in_the_same_pass() -> None:
    one = Cluster(queue="priority", cpus=2)
    singleton = one.submit("singleton", name="train", hold=True)
    first = one.submit(name="train", hold=True, priority=5)
    one.do(ev.ReleaseRequested(singleton, "alice"), ev.ReleaseRequested(first, "alice"))
    assert (one.state(singleton), one.state(first)) == (S.PENDING, S.CONFIGURING)
    one.do(ev.Tick())
    assert one.reason(singleton).code is ReasonCode.DEPENDENCY
    assert one.state(one.submit()) is S.CONFIGURING  # what it would have taken is free
    one.start(first)
    one.end(first)
    assert one.state(singleton) is S.CONFIGURING


def test_a_job_that_is_requeued_has_not_ended() -> None:
    one = Cluster()
    first = one.submit()
    second = one.submit(f"afterok:{first}")
    one.start(first)
    one.do(ev.TasksLost(first, 1, "h1", (0,), "the host was lost"))
    assert one.state(first) in (S.PENDING, S.CONFIGURING)
    assert one.state(second) is S.PENDING
    one.start(first)
    one.end(first)
    assert one.state(second) is S.CONFIGURING


def test_what_can_never_be_is_kept_where_that_is_asked_for() -> None:
    one = Cluster(cancel_never=False)
    first = one.submit()
    second, cancelled = (
        one.submit(f"afterok:{first}"),
        one.submit(f"afterok:{first}", kill_on_invalid_dep=True),
    )
    one.start(first)
    one.end(first, 7)
    assert (one.state(second), one.state(cancelled)) == (S.PENDING, S.CANCELLED)
    assert one.reason(second).code is ReasonCode.DEPENDENCY_NEVER
    one.do(ev.RequeueRequested(first, "alice"))
    assert one.reason(second).code is ReasonCode.DEPENDENCY
    one.start(first)
    one.end(first)
    assert one.state(second) is S.CONFIGURING


def test_one_job_says_for_itself_that_it_is_kept() -> None:
    one = Cluster()
    first = one.submit()
    second = one.submit(f"afterok:{first}", kill_on_invalid_dep=False)
    one.cancel(first)
    assert (one.state(second), one.reason(second).code) == (S.PENDING, ReasonCode.DEPENDENCY_NEVER)
    one.restart()
    assert (one.state(second), one.reason(second).code) == (S.PENDING, ReasonCode.DEPENDENCY_NEVER)


def test_the_end_of_one_job_ends_a_long_chain_behind_it() -> None:
    one = Cluster()
    chain = [one.submit(hold=True)]
    chain += [one.submit(f"afterok:{len(chain) + i}") for i in range(3_000)]
    one.cancel(chain[0])
    assert {one.state(job) for job in chain} == {S.CANCELLED}
    assert not one.cycle.state.dependents.awaited
    assert not one.cycle.state.dependents.waiting


def test_a_job_of_the_past_decides_at_the_submission() -> None:
    one = Cluster()
    past = PastJob(77, S.COMPLETED, 5, 9), PastJob(78, S.FAILED, 5, 9)
    assert one.state(one.submit("afterok:77", past)) is S.CONFIGURING
    assert one.state(one.submit("afterok:78", past)) is S.CANCELLED
    assert one.state(one.submit("afterany:78?afterok:77", past)) is S.CONFIGURING


def test_a_job_without_a_record_holds_up_nobody_and_lets_none_start_that_asks_how_it_ended() -> None:
    one = Cluster()
    first = one.submit(hold=True)
    jobs = {kind: one.submit(f"{kind}:{first}") for kind in ("after", "afterany", "afterok", "afternotok")}
    del one.jobs[first]  # as a damaged row
    one.cycle.state.pending.pop(first)
    one.restart()
    one.do(ev.Tick())
    states = {kind: one.state(job) for kind, job in jobs.items()}
    assert states == {
        "after": S.CONFIGURING, "afterany": S.CONFIGURING, "afterok": S.CANCELLED, "afternotok": S.CANCELLED,
    }  # fmt: skip
    reason = one.jobs[jobs["afterok"]].reason
    assert reason is not None
    assert reason.message.endswith(f"nobody knows any more how job {first} ended")


def test_a_held_job_says_so_before_it_says_for_what_it_waits() -> None:
    one = Cluster()
    first = one.submit()
    second = one.submit(f"afterok:{first}", hold=True)
    assert one.reason(second).code is ReasonCode.HELD_USER
    one.do(ev.ReleaseRequested(second, "alice"))
    assert one.reason(second).code is ReasonCode.DEPENDENCY
    one.do(ev.HoldRequested(second, "alice"))
    one.start(first)
    one.end(first)
    assert (one.state(second), one.reason(second).code) == (S.PENDING, ReasonCode.HELD_USER)


def test_jobs_that_wait_for_others_are_not_looked_at_in_every_pass() -> None:
    one = Cluster()
    first = one.submit(hold=True)
    for _ in range(20):
        one.submit(f"afterok:{first}")
    looked: list[int] = []
    order = one.cycle.policies.queue.order
    one.cycle.policies.queue.order = lambda pending, s: (
        looked.extend(j.id for j in pending) or order(pending, s)
    )  # type: ignore[method-assign,func-returns-value,assignment]
    one.do(ev.HostUp("h1", "boot", "1"))  # something may fit that did not before
    assert looked == []
    assert len(one.cycle.state.dependents.waiting) == 20


# -- the chain


def test_the_chain_has_every_job_in_front_of_a_job_once_and_the_nearest_first() -> None:
    one = Cluster()
    a = one.submit(name="a")
    b = one.submit(f"afterok:{a}", name="b")
    c = one.submit(f"afterany:{a}", name="c")
    d = one.submit(f"afterok:{b}:{c},singleton", name="d")
    one.start(a)
    found = chain_of(one.jobs[d], one.jobs)
    assert found.left_out == 0
    assert found.links == (
        Link(d, "afterok", b, Standing.UNFULFILLED, S.PENDING, "b"),
        Link(d, "afterok", c, Standing.UNFULFILLED, S.PENDING, "c"),
        Link(b, "afterok", a, Standing.UNFULFILLED, S.RUNNING, "a"),
        Link(c, "afterany", a, Standing.UNFULFILLED, S.RUNNING, "a"),
    )


def test_a_singleton_waits_for_the_one_that_runs_and_then_for_the_first() -> None:
    one = Cluster()
    first, second, third = (one.submit("singleton", name="d", hold=True) for _ in range(3))
    assert [link.awaited for link in chain_of(one.jobs[third], one.jobs).links] == [first]
    one.do(ev.ReleaseRequested(first, "alice"))
    assert [link.state for link in chain_of(one.jobs[second], one.jobs).links] == [S.CONFIGURING]


def test_a_long_chain_is_counted_and_its_beginning_is_named() -> None:
    one = Cluster()
    last = one.submit(hold=True)
    for _ in range(LINKS_MAX + 20):
        last = one.submit(f"afterok:{last}")
    found = chain_of(one.jobs[last], one.jobs)
    assert (len(found.links), found.left_out) == (LINKS_MAX, 20)


# -- in parts


@pytest.mark.parametrize("restarts", [False, True])
def test_the_end_of_a_job_releases_many_dependents_in_parts_also_across_a_restart(restarts: bool) -> None:
    one = Cluster()
    first = one.submit()
    behind = [one.submit(f"afterok:{first}", hold=True) for _ in range(1_000)]
    one.start(first)
    exited = ev.TaskExited(first, one.jobs[first].attempt, "h1", 0, 0, 0, one.now_us, one.now_us)
    parts = [one.cycle.step([exited], one.now_us).changes.jobs]
    assert one.state(first) is S.COMPLETED
    while one.cycle.next_due_us() == 0:
        one.cycle.state.forget(one.jobs[first])
        assert first in one.jobs  # as long as others are to be judged by it
        if restarts:
            one.restart()
            break
        parts.append(one.cycle.step((), one.now_us).changes.jobs)
    assert {one.jobs[job].depends for job in behind} == {Standing.FULFILLED}
    assert not one.cycle.state.dependents.awaited
    assert all(0 < len(part) <= 200 for part in parts)
    one.cycle.state.forget(one.jobs[first])
    assert first not in one.jobs


def test_a_job_with_many_dependents_does_not_hold_up_those_of_another() -> None:
    one = Cluster()
    first, other = one.submit(hold=True), one.submit(hold=True)
    for _ in range(1_000):
        one.submit(f"afterany:{first}", hold=True)
    last = one.submit(f"afterany:{other}", hold=True)
    one.cycle.step([ev.CancelRequested(first, "alice"), ev.CancelRequested(other, "bob")], one.now_us)
    one.cycle.step((), one.now_us)
    assert one.jobs[last].depends is Standing.FULFILLED
    assert one.cycle.next_due_us() == 0


def test_dependents_are_judged_by_what_the_job_is_when_their_turn_comes() -> None:
    one = Cluster(cancel_never=False)
    first = one.submit(hold=True)
    behind = [one.submit(f"afterok:{first}", hold=True) for _ in range(1_000)]
    one.cycle.step([ev.CancelRequested(first, "alice")], one.now_us)
    assert {one.jobs[job].depends for job in behind} == {Standing.FAILED, Standing.UNFULFILLED}
    one.do(ev.RequeueRequested(first, "alice"))
    assert {one.jobs[job].depends for job in behind} == {Standing.UNFULFILLED}


@pytest.mark.parametrize(("kind", "code"), [("afterany", 1), ("afterok", 0), ("after", 0)])
def test_who_was_not_reached_before_the_job_is_requeued_is_judged_by_how_it_ended(
    kind: str, code: int
) -> None:
    one = Cluster()
    first = one.submit()
    behind = [one.submit(f"{kind}:{first}", hold=True) for _ in range(1_000)]
    started = ev.TasksStarted(first, 1, "h1", one.now_us, (0,))
    exited = ev.TaskExited(first, 1, "h1", 0, code, 0, one.now_us, one.now_us)
    one.cycle.step([started, exited], one.now_us)
    assert {one.jobs[job].depends for job in behind} == {Standing.FULFILLED, Standing.UNFULFILLED}
    one.do(ev.RequeueRequested(first, "alice"))
    assert not one.state(first).final
    assert {one.jobs[job].depends for job in behind} == {Standing.FULFILLED}
    late = one.submit(f"{kind}:{first}", hold=True)
    assert one.jobs[late].depends is Standing.UNFULFILLED
    one.start(first)
    one.end(first, code)
    assert one.jobs[late].depends is Standing.FULFILLED
    one.cycle.state.forget(one.jobs[first])
    assert first not in one.jobs


def test_a_change_that_no_dependency_asks_for_judges_nobody() -> None:
    one = Cluster()
    first = one.submit()
    for _ in range(10):
        one.submit(f"afterok:{first}")
    outcome = one.cycle.step([ev.Noted(first, "seen")], one.now_us)
    assert outcome.changes.judged == 0
    one.start(first)
    assert one.cycle.step([ev.Noted(first, "seen again")], one.now_us).changes.judged == 0


# -- against brute force


@dataclass
class Model:
    """What each condition has come to, by looking at all jobs after each event and nothing else."""

    fulfilled: dict[tuple[int, int], bool] = field(default_factory=dict)  # by job and place in its list

    def look(self, jobs: dict[int, Job], now_us: int) -> None:
        for job in jobs.values():
            for place, condition in enumerate(parse(job.spec.dependency).of):
                if condition.job and not self.fulfilled.get((job.id, place)) and job.state is S.PENDING:
                    self.fulfilled[job.id, place] = self.met(condition.kind, jobs[condition.job])

    def met(self, kind: str, named: Job) -> bool:
        if kind == "after":
            return named.started_us is not None or named.state.final
        good = {
            "afterany": True,
            "afterok": named.state is S.COMPLETED,
            "afternotok": named.state is not S.COMPLETED,
        }
        return named.state.final and good[kind]

    def may_start(self, job: Job, jobs: dict[int, Job]) -> bool:
        asked = parse(job.spec.dependency)
        met = [
            self.fulfilled.get((job.id, place), False) if one.job else self.alone(job, jobs)
            for place, one in enumerate(asked.of)
        ]
        return not met or (any(met) if asked.any_of else all(met))

    def alone(self, job: Job, jobs: dict[int, Job]) -> bool:
        alike = [j for j in jobs.values() if j.id != job.id and j.spec.name == job.spec.name]
        return not any(j.occupies or (j.state is S.PENDING and j.id < job.id) for j in alike)

    def never(self, job: Job, jobs: dict[int, Job]) -> bool:
        asked = parse(job.spec.dependency)
        failed = [
            bool(one.job) and not self.fulfilled.get((job.id, place), False) and jobs[one.job].state.final
            for place, one in enumerate(asked.of)
        ]
        return bool(failed) and (all(failed) if asked.any_of else any(failed))


KINDS = ["after", "afterany", "afterok", "afternotok"]
DEEDS = ["submit", "submit", "start", "end", "fail", "cancel", "requeue", "lose", "restart"]
STEPS = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 1 << 30)), min_size=10, max_size=60)


def dependency_from(number: int, ids: list[int]) -> str:
    """A list over jobs that there are, as the number says."""
    if not ids or number % 4 == 0:
        return "" if number % 3 else "singleton"
    first, second = ids[number // 7 % len(ids)], ids[number // 31 % len(ids)]
    one = f"{KINDS[number // 5 % 4]}:{first}"
    more = ["", f",{KINDS[number // 11 % 4]}:{second}", f"?{KINDS[number // 11 % 4]}:{second}", ",singleton"]
    return one + more[number // 13 % 4]


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, st.booleans(), st.sampled_from([1, Rules().judged_max]))
def test_what_may_start_and_what_never_may_are_as_brute_force_has_it(
    steps: list[tuple[str, int]], cancel_never: bool, judged_max: int
) -> None:
    one, model = Cluster(cancel_never, cpus=2, judged_max=judged_max), Model()
    all_jobs: dict[int, Job] = {}
    for what, number in steps:
        jobs, ids = one.jobs, sorted(all_jobs)
        chosen = ids[number % len(ids)] if ids else 0
        state = all_jobs[chosen].state if ids else None
        before = {job.id for job in jobs.values() if job.occupies}
        match what:
            case "submit":
                past = tuple(
                    PastJob(j.id, j.state, j.started_us, j.ended_us)
                    for j in all_jobs.values()
                    if j.id not in jobs
                )
                one.submit(dependency_from(number, ids), past, name=f"n{number % 2}")
            case "start" if state is S.CONFIGURING:
                one.start(chosen)
            case "end" | "fail" if state is S.RUNNING:
                one.end(chosen, int(what == "fail"))
            case "cancel" if state in (S.PENDING, S.CONFIGURING, S.RUNNING):
                one.cancel(chosen)
            case "requeue" if state is not None and state.final and chosen in jobs:
                one.do(ev.RequeueRequested(chosen, "alice"))
            case "lose" if state is S.RUNNING:
                one.do(ev.TasksLost(chosen, jobs[chosen].attempt, "h1", (0,)))
            case "restart":
                one.restart()
        # what was placed was placed after the event: look at the jobs as they were between the two
        all_jobs |= one.jobs
        now = {i: as_pending(job) if i not in before and job.occupies else job for i, job in all_jobs.items()}
        model.look(now, one.now_us)
        check(one, model, all_jobs, before)
        one.now_us += 1_000_000


def as_pending(job: Job) -> Job:
    return replace(job, state=S.PENDING, tasks=())


def check(one: Cluster, model: Model, all_jobs: dict[int, Job], before: set[int]) -> None:
    placed = [job for job in one.jobs.values() if job.occupies and job.id not in before]
    for job in placed:
        others = {i: j for i, j in all_jobs.items() if j not in placed}
        assert model.may_start(as_pending(job), others), f"{job.id} started too early: {job.spec.dependency}"
    pending = [job for job in one.jobs.values() if job.state is S.PENDING]
    for job in pending:
        may, never = model.may_start(job, all_jobs), model.never(job, all_jobs)
        standing = Standing.FULFILLED if may else Standing.FAILED if never else Standing.UNFULFILLED
        assert job.depends is standing, (job.id, job.spec.dependency, job.dependencies)
        assert not (never and one.rules.cancel_never)
        if job.held:  # since its host was lost twice; that it says first
            assert one.reason(job.id).code is ReasonCode.HOST_LOST
        elif not may:
            code = ReasonCode.DEPENDENCY_NEVER if never else ReasonCode.DEPENDENCY
            assert one.reason(job.id).code is code
    waiting = {
        j.id for j in one.jobs.values() if j.state is S.PENDING and j.depends is not Standing.FULFILLED
    }
    assert one.cycle.state.dependents.waiting == waiting
    restored = restore_state(dump_state(one.cycle.state, one.now_us), one.now_us)
    assert {i: j.dependencies for i, j in restored.jobs.items()} == {
        i: j.dependencies for i, j in one.jobs.items()
    }


def test_a_singleton_of_a_new_name_is_compared_with_its_namesakes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand waiting jobs of a user must not be gone through for each new name."""
    cluster = Cluster(cpus=1)
    plain = [cluster.submit(name=f"plain{number}") for number in range(20)]
    namesake = cluster.submit(name="b")
    cluster.submit("singleton", name="a")
    compared: list[int] = []
    group_of = dependents.group_of

    def noted(job: Job) -> tuple[str, str]:
        compared.append(job.id)
        return group_of(job)

    monkeypatch.setattr(dependents, "group_of", noted)
    monkeypatch.setattr(dependency, "group_of", noted)
    later = cluster.submit("singleton", name="b")
    assert later in compared
    assert not set(compared) & set(plain)
    assert cluster.reason(later).code is ReasonCode.DEPENDENCY
    cluster.cancel(namesake)
    assert cluster.jobs[later].depends is Standing.FULFILLED
