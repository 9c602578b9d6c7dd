"""Preemption: who gives up what to whom, in any order of events; against brute force for who goes."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Stop
from rm.core.jobs.state import ClusterState
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.job import Job, JobState, Placement
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.registry import load
from rm.core.scheduling.after import After
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning, tries_of
from rm.core.scheduling.explaining import explain
from rm.core.scheduling.preemption import ASKED_MAX, TRIED_MAX, choose, may_go, victims_of
from rm.core.sharing.accounts import Accounts, Qos
from rm.core.sharing.qos import check_all
from rm.errors import UsageError
from tests import builders
from tests.examples import seeds

S = 1_000_000
QUEUES = ["fifo", "priority", "backfill", "multifactor", "response"]


def qos(mode: str = "requeue", grace_s: float = 0.0, exempt_s: float = 0.0) -> Accounts:
    """`urgent` may preempt `batch`; `normal` is nobody's."""
    low = Qos("batch", preempt_mode=mode, grace_s=grace_s, exempt_s=exempt_s)
    made = Accounts(qos=(low, Qos("normal", 5), Qos("urgent", 10, preempts=("batch",))))
    check_all(made)
    return made


class Cluster:
    """Hosts of 16 processors and 4 GPUs, under a cycle."""

    def __init__(self, accounts: Accounts, queue: str = "fifo", hosts: int = 1, slice_us: int = 0) -> None:
        self.now_us = 1_000 * S
        policies = Policies(load("queue", queue), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies, tuning=Tuning(slice_us=slice_us))
        self.actions: list[object] = []
        self.step(ev.AccountsSet(accounts, "root"))
        for number in range(hosts):
            host = builders.host(f"h{number}", cpus=16, gpus=4)
            self.step(ev.HostAdded(host), ev.HostUp(host.name, "boot", "1"))

    @property
    def state(self) -> ClusterState:
        return self.cycle.state

    def step(self, *events: ev.Event) -> None:
        out = self.cycle.step(events, self.now_us)
        assert not out.refused, out.refused
        self.actions = [intent.action for intent in out.intents]

    def submit(self, qos: str = "batch", gpus: int = 4, **spec: object) -> int:
        number = self.state.next_job
        asked = builders.spec(user="ann", qos=qos, gpus_per_task=gpus, **spec)
        self.step(ev.JobSubmitted(number, asked))
        return number

    def start(self, *numbers: int) -> None:
        for number in numbers:
            job = self.state.jobs[number]
            for host in dict.fromkeys(task.host for task in job.tasks):
                if len(job.tasks) > 1:
                    self.step(ev.TasksPrepared(number, job.attempt, host))
            for task in job.tasks:
                self.step(ev.TasksStarted(number, job.attempt, task.host, self.now_us, (task.rank,)))

    def end(self, number: int, signal: int = 0) -> None:
        job = self.state.jobs[number]
        self.step(
            *(
                ev.TaskExited(number, job.attempt, task.host, task.rank, 0, signal, self.now_us, self.now_us)
                for task in job.tasks
            )
        )

    def later(self, seconds: float) -> None:
        self.now_us += int(seconds * S)
        self.step(ev.Tick())

    def of(self, number: int) -> JobState:
        return self.state.jobs[number].state

    def why(self, number: int) -> list[str]:
        job, state = self.state.jobs[number], self.state
        _, reasons, _ = explain(job, state.snapshot(self.now_us), self.cycle.policies, Tuning())
        return [reason.message for reason in reasons]


@pytest.mark.parametrize("queue", QUEUES)
def test_a_job_gives_its_host_up_and_comes_back_after_the_one_it_went_for(queue: str) -> None:
    cluster = Cluster(qos(), queue)
    low = cluster.submit()
    cluster.start(low)
    other = cluster.submit()
    urgent = cluster.submit("urgent")
    assert cluster.of(low) is JobState.COMPLETING
    assert [type(action) for action in cluster.actions] == [Stop]
    assert f"waits for the end of job {low}, preempted for it" in cluster.why(urgent)[0]
    cluster.end(low, signal=15)
    assert cluster.of(urgent) is JobState.CONFIGURING, "the host was given up for this one"
    assert cluster.of(low) is cluster.of(other) is JobState.PENDING
    assert not cluster.state.claims
    cluster.start(urgent)
    cluster.later(3_600)
    assert cluster.of(urgent) is JobState.RUNNING, "who was preempted does not preempt"
    cluster.end(urgent)
    assert cluster.of(low) is JobState.CONFIGURING
    assert cluster.state.jobs[low].preempted_by == 0
    assert any("preempted by job" in what for _, what in cluster.state.jobs[low].history)


@pytest.mark.parametrize(
    ("mode", "spec", "ends_as"),
    [("cancel", {}, JobState.PREEMPTED), ("requeue", {"requeue": False}, JobState.PREEMPTED),
     ("requeue", {}, JobState.PENDING)],
)  # fmt: skip
def test_what_becomes_of_a_job_that_went(mode: str, spec: dict[str, bool], ends_as: JobState) -> None:
    cluster = Cluster(qos(mode))
    low = cluster.submit(**spec)
    cluster.start(low)
    cluster.submit("urgent")
    cluster.end(low, signal=15)
    job = cluster.state.jobs[low]
    assert job.state is ends_as
    assert job.reason is not None
    assert job.reason.code is ReasonCode.PREEMPTED


def test_jobs_without_a_go_wait_again_whatever_their_mode() -> None:
    cluster = Cluster(qos("cancel"), hosts=2)
    low = cluster.submit(ntasks=2)
    cluster.submit("urgent")
    assert cluster.of(low) is JobState.PENDING, "no task of the gang had started"


@pytest.mark.parametrize("accounts", [qos("off"), Accounts(qos=(Qos("batch"), Qos("urgent", 10)))])
def test_nobody_goes_for_whom_he_need_not(accounts: Accounts) -> None:
    cluster = Cluster(accounts)
    low = cluster.submit()
    cluster.start(low)
    cluster.submit("urgent")
    assert cluster.of(low) is JobState.RUNNING


def test_only_those_go_whose_qos_is_named() -> None:
    cluster = Cluster(qos(), hosts=2)
    normal, low = cluster.submit("normal"), cluster.submit()
    cluster.start(normal, low)
    cluster.submit("urgent")
    assert (cluster.of(normal), cluster.of(low)) == (JobState.RUNNING, JobState.COMPLETING)
    cluster.submit("urgent", ntasks=2)
    assert cluster.of(normal) is JobState.RUNNING


def test_nobody_goes_where_that_would_not_help() -> None:
    cluster = Cluster(qos(), hosts=2)
    normal, low = cluster.submit("normal"), cluster.submit()
    cluster.start(normal, low)
    cluster.submit("urgent", ntasks=2)  # one of the two hosts stays another's
    assert cluster.of(low) is JobState.RUNNING


def test_a_job_is_let_run_for_a_while_first() -> None:
    cluster = Cluster(qos(exempt_s=100))
    low = cluster.submit()
    cluster.start(low)
    cluster.submit("urgent")
    cluster.later(99)
    assert cluster.of(low) is JobState.RUNNING
    due_us = cluster.cycle.next_due_us()
    assert due_us is not None
    assert due_us <= cluster.now_us + S
    cluster.later(1)
    assert cluster.of(low) is JobState.COMPLETING


@pytest.mark.parametrize(
    ("grace_s", "signal", "grace_us", "warn_us"),
    [(0, 0, 30 * S, 0), (120, 0, 120 * S, 0), (120, 10, 30 * S, 120 * S), (0, 10, 30 * S, 0)],
)
def test_the_grace_of_its_qos_and_its_own_signal(
    grace_s: int, signal: int, grace_us: int, warn_us: int
) -> None:
    cluster = Cluster(qos(grace_s=grace_s))
    low = cluster.submit(warn_signal=signal)
    cluster.start(low)
    cluster.submit("urgent")
    assert cluster.actions == [Stop(low, 1, "h0", grace_us, "abort", warn_us)]


def test_the_least_work_is_lost_and_then_the_fewest_go() -> None:
    cluster = Cluster(qos(), hosts=3)
    old = cluster.submit()
    cluster.start(old)
    cluster.later(1_000)
    two = [cluster.submit(gpus=2) for _ in range(2)]
    cluster.start(*two)
    cluster.later(10)
    one = cluster.submit()
    cluster.start(one)
    cluster.submit("urgent")
    assert [cluster.of(job) for job in (old, *two, one)] == [JobState.RUNNING] * 3 + [JobState.COMPLETING]


def test_a_gang_goes_as_a_whole_and_others_keep_off_what_it_leaves() -> None:
    cluster = Cluster(qos(), hosts=2)
    gang = cluster.submit(ntasks=2)
    cluster.start(gang)
    urgent = cluster.submit("urgent", ntasks=2)
    normal = cluster.submit("normal", gpus=1)
    job = cluster.state.jobs[gang]
    assert {action.host for action in cluster.actions if isinstance(action, Stop)} <= {"h0", "h1"}
    cluster.step(ev.TaskExited(gang, 1, "h0", 0, 0, 15, job.started_us, cluster.now_us))
    assert cluster.of(normal) is JobState.PENDING
    cluster.step(ev.TaskExited(gang, 1, "h1", 1, 0, 15, job.started_us, cluster.now_us))
    assert cluster.of(urgent) is JobState.CONFIGURING
    assert cluster.of(normal) is JobState.PENDING


def test_what_is_free_already_is_kept_for_the_one_that_others_go_for() -> None:
    cluster = Cluster(qos())
    low = cluster.submit(gpus=3)
    cluster.start(low)
    urgent = cluster.submit("urgent", gpus=4)
    small = cluster.submit("normal", gpus=1)
    assert cluster.of(small) is JobState.PENDING
    cluster.step(ev.CancelRequested(urgent, "ann"))
    assert cluster.of(small) is JobState.CONFIGURING, "nobody claims it any more"


def test_nobody_goes_for_a_job_that_a_limit_keeps_from_the_hosts_that_it_would_have() -> None:
    """It asks for one processor, and would hold all 16 of its host; its user may have 8."""
    batch, urgent = Qos("batch"), Qos("urgent", 10, limits={"user.cpus": 8}, preempts=("batch",))
    cluster = Cluster(Accounts(qos=(batch, urgent)))
    low = cluster.submit()
    cluster.start(low)
    whole = cluster.submit("urgent", gpus=0, exclusive=True)
    for _ in range(3):
        cluster.later(61)
        assert cluster.of(low) is JobState.RUNNING
    assert cluster.of(whole) is JobState.PENDING
    cluster.submit("urgent", gpus=4)
    assert cluster.of(low) is JobState.COMPLETING, "one that asks for less is helped"


def test_jobs_for_whom_nobody_can_go_do_not_keep_others_from_their_turn() -> None:
    cluster = Cluster(qos(), hosts=2)
    normal, low = cluster.submit("normal"), cluster.submit()
    cluster.start(normal, low)
    for cpus in range(1, 2 * TRIED_MAX + 2):  # kinds that want both hosts, of which one stays another's
        cluster.submit("urgent", ntasks=2, cpus_per_task=cpus)
    cluster.submit("urgent")
    for _ in range(3):
        cluster.later(1)
    assert cluster.of(low) is JobState.COMPLETING
    assert cluster.of(normal) is JobState.RUNNING


def test_those_passed_over_are_looked_at_again_after_all_others() -> None:
    cluster = Cluster(qos(exempt_s=100), hosts=2)
    low = cluster.submit(ntasks=2)
    cluster.start(low)
    for cpus in range(1, 2 * TRIED_MAX):
        cluster.submit("urgent", ntasks=2, cpus_per_task=cpus)
    cluster.later(99)
    assert cluster.of(low) is JobState.RUNNING
    cluster.later(1)
    assert cluster.of(low) is JobState.COMPLETING


def test_a_claim_outlives_the_daemon() -> None:
    cluster = Cluster(qos())
    low = cluster.submit()
    cluster.start(low)
    urgent = cluster.submit("urgent")
    again = restore_state(dump_state(cluster.state, cluster.now_us), cluster.now_us)
    assert again.claims == cluster.state.claims == {urgent: {low: None}}


def test_a_lost_host_ends_a_claim_that_it_was_to_meet() -> None:
    cluster = Cluster(qos(), hosts=2)
    low, other = cluster.submit(), cluster.submit()
    cluster.start(low, other)
    urgent = cluster.submit("urgent")
    gone = next(job for job in (low, other) if cluster.of(job) is JobState.COMPLETING)
    host = cluster.state.jobs[gone].tasks[0].host
    cluster.step(ev.HostDown(host, "lost"))
    assert not cluster.state.claims
    assert cluster.of(urgent) is JobState.PENDING
    cluster.later(61)  # not at once: it might be its doing
    assert JobState.COMPLETING in (cluster.of(low), cluster.of(other))


def test_elements_of_an_array_are_helped_one_after_the_other_and_a_slice_goes_whole() -> None:
    cluster = Cluster(qos(), hosts=1, slice_us=60 * S)
    low = cluster.submit(array="0-99", gpus=4)
    for _ in range(3):  # how long an element takes is known after the first ones
        running = [job for job in cluster.state.jobs.values() if job.occupies]
        cluster.start(running[0].id)
        cluster.now_us += S // 10
        cluster.end(running[0].id)
    slice_of = [job.id for job in cluster.state.jobs.values() if job.occupies]
    assert len(slice_of) > 1
    urgent = cluster.submit("urgent", array="0-1", gpus=4)
    assert {cluster.of(job) for job in slice_of} == {JobState.COMPLETING}
    for job in slice_of:
        cluster.end(job, signal=15)
    mine = [job for job in cluster.state.jobs.values() if job.array_job == urgent]
    assert [job.state for job in mine] == [JobState.CONFIGURING]
    assert low in cluster.state.pending


def test_a_preemptor_does_not_delay_one_that_stands_before_it() -> None:
    """The first needs both hosts, of which one is not to be had; the second would take the other."""
    cluster = Cluster(qos(), "backfill", hosts=2)
    normal = cluster.submit("normal", time_limit_us=600 * S)
    low = cluster.submit(time_limit_us=500 * S)
    cluster.start(normal, low)
    cluster.submit("urgent", ntasks=2, time_limit_us=60 * S)
    cluster.submit("urgent", time_limit_us=3_600 * S)
    assert cluster.of(low) is JobState.RUNNING
    cluster.submit("urgent", time_limit_us=60 * S)
    assert cluster.of(low) is JobState.COMPLETING, "this one has ended by then"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((Qos("a", preempts=("b",)), Qos("b", preempts=("a",))), "preempt each other: a, b, a"),
        ((Qos("a", preempts=("a",)),), "preempt each other: a, a"),
        ((Qos("a", preempts=("c",)),), "preempts 'c', which is no QOS"),
        ((Qos("a", preempt_mode="kill"),), "preempt mode of QOS a is 'kill'"),
        ((Qos("a", grace_s=-1.0),), "grace of QOS a is -1"),
        ((Qos("a", exempt_s=float("nan")),), "exempt time of QOS a is nan"),
    ],
)
def test_wrong_qos_are_refused(wrong: tuple[Qos, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_all(Accounts(qos=wrong))


def any_cluster(rng: random.Random) -> Cluster:
    cluster = Cluster(qos(), hosts=rng.randint(1, 3))
    for _ in range(rng.randint(1, 7)):
        shape = rng.choice([{}, {}, {"ntasks": 2}, {"cpus_per_task": 8}, {"exclusive": True}])
        number = cluster.submit(rng.choice(["batch", "batch", "normal"]), rng.randint(0, 4), **shape)
        if cluster.state.jobs[number].occupies:
            cluster.start(number)
        cluster.now_us += rng.randint(0, 1_000) * S
    return cluster


@pytest.mark.parametrize("seed", seeds(60))
def test_who_goes_against_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    cluster = any_cluster(rng)
    state, policies = cluster.state, cluster.cycle.policies
    for number in [job.id for job in state.jobs.values() if job.state is JobState.PENDING]:
        cluster.step(ev.CancelRequested(number, "ann"))
    snapshot = state.snapshot(cluster.now_us)
    shape = rng.choice([{}, {"ntasks": 2}, {"ntasks": 3}, {"exclusive": True}, {"cpus_per_task": 16}])
    asked = builders.spec(user="ann", qos="urgent", gpus_per_task=rng.randint(0, 4), **shape)
    job = Job(state.next_job, asked, 0, qos="urgent")
    found = victims_of(job, snapshot, state.accounts, policies, Tuning())
    chosen = found[1] if found is not None else ()
    candidates = may_go(snapshot, state.accounts, "urgent")
    tries = tries_of(policies, Tuning())

    def fits(gone) -> bool:
        then = After(snapshot, tries).without([n for one in gone for n in one.jobs])
        return tries(job, then) is not None

    def lost(some) -> int:
        return sum(one.lost_us for one in some)

    enough = [
        some for size in range(len(candidates) + 1) for some in combinations(candidates, size) if fits(some)
    ]
    if not enough or () in enough:
        assert not chosen
        return
    assert chosen in enough or tuple(sorted(chosen, key=candidates.index)) in enough
    assert all(one in candidates for one in chosen)
    for size in range(len(chosen)):  # nobody goes whose going is not needed
        assert not any(fits(some) for some in combinations(chosen, size))
    least = min(map(lost, enough))
    assert lost(chosen) <= max(2 * least, least + 60 * S) or len(chosen) <= min(map(len, enough))


def test_one_look_asks_the_placement_policy_a_bounded_number_of_times() -> None:
    cluster = Cluster(qos(), hosts=70)
    low = [cluster.submit() for _ in range(70)]
    for number in low:
        cluster.now_us += S
        cluster.start(number)
    job = Job(
        cluster.state.next_job, builders.spec(qos="urgent", gpus_per_task=4, ntasks=60), 0, qos="urgent"
    )
    snapshot, asked = cluster.state.snapshot(cluster.now_us), 0
    tries = tries_of(cluster.cycle.policies, Tuning())

    def counted(job: Job, then: Snapshot) -> Placement | None:
        nonlocal asked
        asked += 1
        return tries(job, then)

    chosen = choose(job, snapshot, may_go(snapshot, cluster.state.accounts, "urgent"), counted)
    assert sorted(n for one in chosen for n in one.jobs) == low[-60:], "those that began last"
    assert asked <= ASKED_MAX + 2 * (len(low).bit_length() + 2)


@pytest.mark.parametrize("seed", seeds(30))
def test_everybody_gets_his_turn_in_any_order_of_events(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(
        qos(rng.choice(["requeue", "cancel"]), grace_s=rng.choice([0, 60]), exempt_s=rng.choice([0, 30])),
        rng.choice(QUEUES),
        hosts=3,
        slice_us=rng.choice([0, 60 * S]),
    )
    state = cluster.state

    def check() -> None:
        for victim in (job for job in state.jobs.values() if job.preempted_by and job.occupies):
            assert state.accounts.qos_by_name["urgent"].preempts == (victim.qos,)
        again = restore_state(dump_state(state, cluster.now_us), cluster.now_us)
        for number, gone in state.claims.items():
            assert again.claims[number].keys() >= gone.keys() & state.placed.keys()

    for _ in range(80):
        cluster.later(rng.randint(0, 40))
        placed = [job for job in state.jobs.values() if job.occupies]
        waiting = [job for job in state.jobs.values() if job.state is JobState.PENDING]
        match rng.choice(["submit", "submit", "submit", "start", "start", "end", "cancel", "down"]):
            case "submit":
                shape = rng.choice([{}, {}, {"ntasks": 2}, {"array": "0-5"}, {"exclusive": True}])
                cluster.submit(rng.choice(["batch", "normal", "urgent"]), rng.randint(1, 4), **shape)
            case "start" if placed:
                cluster.start(
                    *(job.id for job in placed if job.state is JobState.CONFIGURING and not job.slice_of)
                )
            case "end" if placed:
                job = rng.choice(placed)
                cluster.end(job.id, 15 if job.state is JobState.COMPLETING else 0)
            case "cancel" if waiting:
                cluster.step(ev.CancelRequested(rng.choice(waiting).id, "ann"))
            case "down":
                name = f"h{rng.randrange(3)}"
                cluster.step(ev.HostDown(name, "lost"))
                cluster.step(ev.HostUp(name, "boot", "1"))
        check()
    for _ in range(3_000):
        for job in [job for job in state.jobs.values() if job.held and job.state is JobState.PENDING]:
            cluster.step(ev.ReleaseRequested(job.id, "ann"))
        placed = [job for job in state.jobs.values() if job.occupies]
        if not placed and not state.pending:
            break
        if placed:
            cluster.end(placed[0].id, 15 if placed[0].state is JobState.COMPLETING else 0)
        cluster.later(1)
        check()
    assert not state.pending
    assert not state.claims


def test_a_plan_outlasts_the_pass_in_which_one_of_several_victims_has_gone() -> None:
    cluster = Cluster(qos("cancel"), "backfill", hosts=3)
    of_one = load("queue", "backfill", {"depth": 1})
    cluster.cycle.policies = replace(cluster.cycle.policies, queue=of_one)
    low = [cluster.submit(hosts_only=(host,)) for host in ("h0", "h1")]
    half: dict[str, object] = {"gpus": 2, "cpus_per_task": 8, "hosts_only": ("h2",)}
    runs = cluster.submit("normal", time_limit_us=100 * S, **half)
    cluster.start(*low, runs)
    reserved = cluster.submit("normal", hosts_only=("h2",), time_limit_us=100 * S)
    assert list(cluster.state.planned) == [reserved]
    urgent = cluster.submit("urgent", ntasks=2, hosts_only=("h0", "h1"), priority=-1)
    cluster.end(low[0], signal=15)
    assert urgent in cluster.state.claims, "the other victim is to go, too"
    assert reserved in cluster.state.planned
    late = cluster.submit("normal", time_limit_us=1_000 * S, **half)
    assert cluster.of(late) is JobState.PENDING, "it would delay the job that is planned there"
