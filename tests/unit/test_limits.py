"""Limits of accounts, users and QOS: never exceeded in any order of events, and lifted as soon as may be."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import JobSpec, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling import engine
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.scheduling.explaining import explain
from rm.core.sharing.accounts import Account, Accounts, Member, Qos, checked
from rm.core.sharing.ledger import Billing
from rm.core.sharing.qos import check_all
from rm.core.sharing.resources import resources_of
from rm.core.sharing.usage import Usage
from tests import builders
from tests.examples import seeds
from tests.turns import Calls

S = 1_000_000
MINUTE_US = 60 * S
PLAIN = Tuning()


def lab(limits: dict[str, int] | None = None, **of: dict[str, int]) -> Accounts:
    """Accounts science > physics, chess; `of`: limits of accounts, members (ann_physics) and QOS (fast)."""
    named = [("science", "root"), ("physics", "science"), ("chess", "root")]
    accounts = [Account(name, parent, limits=of.get(name, {})) for name, parent in named]
    pairs = [("physics", "ann"), ("physics", "bob"), ("chess", "bob"), ("science", "eve")]
    members = [Member(account, user, limits=of.get(f"{user}_{account}", {})) for account, user in pairs]
    qos = [Qos("fast", 10, limits=of.get("fast", {})), Qos("slow", limits=of.get("slow", {}))]
    made = checked(accounts, members, qos, limits)
    check_all(made)
    return made


class Cluster:
    """Four hosts of 16 processors and 4 GPUs, under a cycle."""

    def __init__(self, accounts: Accounts, queue: str = "priority", tuning: Tuning = PLAIN) -> None:
        self.now_us = 0
        self.placed_us: dict[int, int] = {}
        policies = Policies(load("queue", queue), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies, tuning=tuning)
        self.step(ev.AccountsSet(accounts, "root"))
        for number in range(4):
            host = builders.host(f"h{number}", cpus=16, gpus=4)
            self.step(ev.HostAdded(host), ev.HostUp(host.name, "boot", "1"))

    @property
    def state(self) -> ClusterState:
        return self.cycle.state

    def step(self, *events: ev.Event) -> None:
        out = self.cycle.step(events, self.now_us)
        assert not out.refused, out.refused
        placed = [event.job for event in out.recorded if isinstance(event, ev.JobPlaced)]
        self.placed_us |= dict.fromkeys(placed, self.now_us)

    def submit(self, user: str = "ann", account: str = "", qos: str = "", **spec: object) -> int:
        number = self.state.next_job
        self.step(ev.JobSubmitted(number, builders.spec(user=user, account=account, qos=qos, **spec)))
        return number

    def end(self, number: int) -> None:
        """It ran since it was placed."""
        job, since_us = self.state.jobs[number], self.placed_us[number]
        self.step(
            *(
                ev.TaskExited(number, job.attempt, task.host, task.rank, 0, 0, since_us, self.now_us)
                for task in job.tasks
            )
        )

    def runs(self, number: int) -> bool:
        return self.state.jobs[number].occupies

    def code(self, number: int) -> ReasonCode:
        reason = self.cycle.reason_of(self.state.jobs[number])
        assert reason is not None
        return reason.code


CASES = [
    # limits, the first job, the second one, by what it waits
    ({"science": {"running": 1}}, {}, {"user": "bob"}, "AssocGrpJobsLimit"),
    ({"physics": {"gpus": 3}}, {"gpus_per_task": 2}, {"user": "bob", "gpus_per_task": 2}, "AssocGrpGRES"),
    ({"physics": {"cpus": 9}}, {"cpus_per_task": 8}, {"user": "bob", "cpus_per_task": 2}, "AssocGrpCpuLimit"),
    ({"physics": {"hosts": 2}}, {"hosts_min": 2, "ntasks": 2}, {"user": "bob"}, "AssocGrpNodeLimit"),
    ({"physics": {"mem_gib": 3}}, {"mem_gib": 2}, {"user": "bob", "mem_gib": 2}, "AssocGrpMemLimit"),
    ({"physics": {"user.running": 1}}, {}, {}, "AssocMaxJobsLimit"),
    ({"ann_physics": {"running": 1}}, {}, {}, "AssocMaxJobsLimit"),
    ({"limits": {"running": 1}}, {}, {"user": "nobody"}, "AssocGrpJobsLimit"),
    ({"limits": {"user.gpus": 4}}, {"gpus_per_task": 4}, {"gpus_per_task": 1}, "AssocGrpGRES"),
    ({"fast": {"running": 1}}, {"qos": "fast"}, {"user": "bob", "qos": "fast"}, "QOSGrpJobsLimit"),
    ({"fast": {"user.running": 1}}, {"qos": "fast"}, {"qos": "fast"}, "QOSMaxJobsPerUserLimit"),
    ({"fast": {"user.gpus": 1}}, {"qos": "fast", "gpus_per_task": 1}, {"qos": "fast", "gpus_per_task": 1},
     "QOSMaxGRESPerUser"),
    ({"fast": {"account.running": 1}}, {"qos": "fast"}, {"user": "bob", "qos": "fast", "account": "physics"},
     "QOSMaxJobsPerAccountLimit"),
    ({"physics": {"gpu_minutes_running": 100}}, {"gpus_per_task": 1, "time_limit_us": 60 * MINUTE_US},
     {"gpus_per_task": 1, "time_limit_us": 60 * MINUTE_US}, "AssocGrpGRESRunMinutes"),
    ({"physics": {"billing_minutes": 100}}, {"gpus_per_task": 1, "time_limit_us": 60 * MINUTE_US},
     {"gpus_per_task": 1, "time_limit_us": 60 * MINUTE_US}, "AssocGrpBillingMinutes"),
]  # fmt: skip


@pytest.mark.parametrize("queue", ["priority", "backfill"])
@pytest.mark.parametrize(
    ("limits", "first", "second", "code"), CASES, ids=[case[3] + str(i) for i, case in enumerate(CASES)]
)
def test_a_job_beyond_a_limit_waits_for_what_uses_it_up_alone(queue, limits, first, second, code) -> None:
    cluster = Cluster(lab(**limits), queue)
    one, two = cluster.submit(**first), cluster.submit(**second)
    assert cluster.runs(one)
    assert not cluster.runs(two)
    assert cluster.code(two) == code
    cluster.end(one)
    assert cluster.runs(two)


def test_others_are_not_held_up_by_a_limit_that_is_not_theirs() -> None:
    cluster = Cluster(lab(physics={"running": 1}), "backfill")
    numbers = [cluster.submit("ann") for _ in range(3)] + [
        cluster.submit("eve"),
        cluster.submit("bob", "chess"),
    ]
    assert [cluster.runs(number) for number in numbers] == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("limits", "spec", "code"),
    [
        ({"physics": {"job.gpus": 1}}, {"gpus_per_task": 2}, "AssocMaxGRESPerJob"),
        (
            {"science": {"job.minutes": 10}},
            {"time_limit_us": 11 * MINUTE_US},
            "AssocMaxWallDurationPerJobLimit",
        ),
        ({"fast": {"job.hosts": 1}}, {"qos": "fast", "hosts_min": 2, "ntasks": 2}, "QOSMaxNodePerJobLimit"),
        (
            {"fast": {"job.gpu_minutes_running": 9}},
            {"qos": "fast", "gpus_per_task": 1},
            "QOSMaxGRESMinutesPerJob",
        ),
        ({"physics": {"gpus": 1}}, {"gpus_per_task": 2}, "AssocGrpGRES"),
        ({"limits": {"gpu_minutes_running": 99}}, {"gpus_per_task": 1}, "AssocGrpGRESRunMinutes"),
    ],
)
def test_what_can_never_run_waits_with_the_limit(limits, spec, code) -> None:
    cluster = Cluster(lab(**limits))
    number = cluster.submit(**spec)
    assert not cluster.runs(number)
    assert cluster.code(number) == code


def test_a_job_without_a_time_limit_gets_the_longest_that_it_may_have() -> None:
    cluster = Cluster(lab(science={"job.minutes": 30}, physics={"job.minutes": 90}))
    assert cluster.state.jobs[cluster.submit()].spec.time_limit_us == 30 * MINUTE_US
    assert cluster.state.jobs[cluster.submit(time_limit_us=MINUTE_US)].spec.time_limit_us == MINUTE_US
    assert cluster.state.jobs[cluster.submit("bob", "chess")].spec.time_limit_us is None


def test_time_alone_lifts_a_limit_of_minutes() -> None:
    cluster = Cluster(lab(physics={"gpu_minutes_running": 100}))
    one = cluster.submit(gpus_per_task=1, time_limit_us=60 * MINUTE_US)
    two = cluster.submit(gpus_per_task=1, time_limit_us=60 * MINUTE_US)
    job = cluster.state.jobs[one]
    cluster.step(ev.TasksStarted(one, job.attempt, job.tasks[0].host, 0, (0,)))
    assert not cluster.runs(two)
    for _ in range(1_000):
        due_us = cluster.cycle.next_due_us()
        assert due_us is not None
        assert due_us > cluster.now_us
        cluster.now_us = due_us
        cluster.step()
        if cluster.runs(two):
            break
    assert 20 * MINUTE_US <= cluster.now_us <= 21 * MINUTE_US


def test_other_limits_count_at_once() -> None:
    cluster = Cluster(lab(physics={"running": 1}))
    one, two = cluster.submit(), cluster.submit()
    assert not cluster.runs(two)
    cluster.step(ev.AccountsSet(lab(physics={"running": 2}), "root"))
    assert cluster.runs(one)
    assert cluster.runs(two)


def test_elements_of_an_array_count_each_and_slices_as_one() -> None:
    cluster = Cluster(lab(physics={"user.running": 3}), tuning=Tuning(slice_us=60 * S))
    number = cluster.submit(array="0-99", cpus_per_task=1)
    placed = [job for job in cluster.state.jobs.values() if job.array_job == number and job.occupies]
    at_once = {job.slice_of or job.id for job in placed}
    assert len(at_once) == 3
    assert cluster.code(number) is ReasonCode.ASSOC_USER_JOBS


def test_why_names_who_uses_it_up() -> None:
    cluster = Cluster(lab(physics={"gpus": 4}))
    cluster.submit("ann", gpus_per_task=3)
    cluster.submit("bob", "physics", gpus_per_task=1)
    waits = cluster.submit("bob", "physics", gpus_per_task=2)
    state = cluster.state
    _, reasons, _ = explain(state.jobs[waits], state.snapshot(0), cluster.cycle.policies, Tuning())
    assert str(reasons[0]) == "(AssocGrpGRES) account physics has 4 of at most 4 GPUs, and needs 2 more"
    assert dict(reasons[0].numbers) == {"limit": 4, "in_use": 4, "needed": 2, "used_by": "ann 3, bob 1"}


def test_why_names_the_job_for_which_the_rest_of_a_limit_is_set_aside() -> None:
    """Also to one that comes alone: the pass over it brings in who waits for the limit."""
    cluster = Cluster(lab(physics={"gpus": 4}), "backfill")
    wide = {"ntasks": 1, "gpus_per_task": 1, "account": "physics", "time_limit_us": 60 * MINUTE_US}
    cluster.submit("ann", **wide | {"gpus_per_task": 2})
    large = cluster.submit("ann", **wide | {"gpus_per_task": 4})
    small = cluster.submit("bob", **wide | {"time_limit_us": 90 * MINUTE_US})
    short = cluster.submit("bob", **wide | {"time_limit_us": 50 * MINUTE_US})
    state, policies = cluster.state, cluster.cycle.policies
    assert [number in state.placed for number in (large, small, short)] == [False, False, True]
    _, reasons, _ = explain(state.jobs[small], state.snapshot(0), policies, Tuning())
    for reason in (reasons[0], cluster.cycle.reason_of(state.jobs[small])):
        assert reason is not None
        assert reason.code == "AssocGrpGRES"
        assert f"the rest is set aside for job {large}, which is expected to start at 1970-01-01" in str(
            reason
        )
    cluster.step(ev.CancelRequested(large, "ann"))
    cluster.step()
    assert small in state.placed  # nothing is set aside for it any more


def test_elements_that_wait_for_their_turn_on_a_host_use_nothing_yet() -> None:
    cluster = Cluster(lab(), "fifo", Tuning(slice_us=60 * S))
    state = cluster.state
    state.ledger.billing = Billing(gpu=0.0, cpu=1.0, half_life_us=0)
    cluster.submit("ann", "physics", array="0-299", cpus_per_task=2)
    expected, waited, rng = 0, 0, random.Random(1)
    for _ in range(60):
        passed_s = rng.randrange(1, 5)
        runs = [job for job in state.jobs.values() if job.occupies and not job.waits_in_slice]
        waited += sum(job.waits_in_slice for job in state.jobs.values())
        expected += passed_s * sum(job.spec.cpus_per_task for job in runs)
        cluster.now_us += passed_s * S
        assert sum(state.ledger.amounts(cluster.now_us).values()) == pytest.approx(expected)
        if runs:
            cluster.end(rng.choice(runs).id)
    assert expected > 1_000 < waited


def in_use(state: ClusterState, chosen, now_us: int) -> Counter[str]:
    """By definition: what the jobs that hold hosts have, of a slice one."""
    found: Counter[str] = Counter()
    slices: set[int] = set()
    for job in state.jobs.values():
        if job.occupies and chosen(job) and job.slice_of not in slices:
            slices |= {job.slice_of} - {0}
            has = resources_of(job.spec, job.tasks, state.hosts)
            found.update(running=1, gpus=has.gpus, cpus=has.cpus, hosts=has.hosts)
            if has.gpus and job.spec.time_limit_us is not None:
                ran_us = 0 if job.started_us is None else now_us - job.started_us
                left_us = max(0, job.spec.time_limit_us - ran_us)
                found["gpu_minutes_running"] += has.gpus * left_us // MINUTE_US
    return found


def assert_within(state: ClusterState, limits: dict[str, dict[str, int]], now_us: int) -> None:
    path = state.accounts.path
    rules = {
        "limits": lambda job: True,
        "science": lambda job: "science" in path(job.account),
        "physics": lambda job: "physics" in path(job.account),
        "ann_physics": lambda job: (job.account, job.spec.user) == ("physics", "ann"),
        "fast": lambda job: job.qos == "fast",
    }
    for whose, own in limits.items():
        for name, limit in own.items():
            each, _, measure = name.rpartition(".")
            groups = [rules[whose]]
            if each == "user":
                groups = [
                    lambda job, user=user, whose=whose: rules[whose](job) and job.spec.user == user
                    for user in ("ann", "bob", "eve", "nobody")
                ]
            if each == "account":
                groups = [
                    lambda job, account=account, whose=whose: rules[whose](job) and job.account == account
                    for account in ("science", "physics", "chess")
                ]
            for chosen in groups:
                assert in_use(state, chosen, now_us)[measure] <= limit, (whose, name)


def any_limits(rng: random.Random) -> dict[str, dict[str, int]]:
    measures = ["running", "gpus", "cpus", "hosts", "user.running", "user.gpus", "gpu_minutes_running"]
    found = {}
    for whose in ("limits", "science", "physics", "ann_physics", "fast"):
        names = [name for name in measures if whose != "ann_physics" or "." not in name]
        names += ["account.gpus", "account.running"] if whose == "fast" else []
        chosen = rng.sample(names, rng.randint(0, 2))
        found[whose] = {name: rng.randint(1, 12) * (30 if "minutes" in name else 1) for name in chosen}
    return found


@pytest.mark.parametrize("seed", seeds(30))
def test_limits_are_never_exceeded_in_any_order_of_events(seed: int) -> None:
    rng = random.Random(seed)
    limits = any_limits(rng)
    queue = rng.choice(["priority", "fifo", "backfill", "multifactor"])
    cluster = Cluster(lab(**limits), queue, Tuning(slice_us=rng.choice([0, 60 * S])))
    state = cluster.state
    for _ in range(120):
        cluster.now_us += rng.randint(0, 20) * S
        running = [job for job in state.jobs.values() if job.occupies and not job.waits_in_slice]
        waiting = [job for job in state.jobs.values() if job.state is JobState.PENDING]
        match rng.choice(["submit", "submit", "end", "end", "cancel", "hold", "release", "down", "limits"]):
            case "submit":
                user, account = rng.choice(
                    [("ann", ""), ("bob", "physics"), ("bob", "chess"), ("eve", ""), ("nobody", "")]
                )
                ask = rng.choice(
                    [{},
                     {"gpus_per_task": rng.randint(1, 4), "time_limit_us": rng.randint(1, 40) * MINUTE_US},
                     {"hosts_min": 2, "ntasks": 2},
                     {"array": "0-9"},
                     {"cpus_per_task": rng.randint(1, 8)}, {"exclusive": True}]
                )  # fmt: skip
                cluster.submit(user, account, rng.choice(["", "fast"]), **ask)
            case "end" if running:
                cluster.end(rng.choice(running).id)
            case "cancel" if waiting:
                cluster.step(ev.CancelRequested(rng.choice(waiting).id, "root"))
            case "hold" if waiting:
                cluster.step(ev.HoldRequested(rng.choice(waiting).id, "root"))
            case "release":
                for number in [job.id for job in waiting if job.held]:
                    if state.jobs[number].state is JobState.PENDING:
                        cluster.step(ev.ReleaseRequested(number, "root"))
            case "down":
                name = f"h{rng.randrange(4)}"
                cluster.step(ev.HostDown(name, "lost"))
                cluster.step(ev.HostUp(name, "boot", "1"))
            case "limits" if rng.random() < 0.2:  # higher ones: those that run keep what they have
                limits = {
                    whose: {name: limit + 1 for name, limit in own.items()} for whose, own in limits.items()
                }
                cluster.step(ev.AccountsSet(lab(**limits), "root"))
        assert_within(state, limits, cluster.now_us)
        again = restore_state(dump_state(state, cluster.now_us), cluster.now_us).tally
        assert {k: v for k, v in again.in_use.items() if any(v)} == {
            k: v for k, v in state.tally.in_use.items() if any(v)
        }
        assert +again.submitted == +state.tally.submitted
    # who waits, waits for a reason that holds: after all is over, everybody has had a turn
    for number in [job.id for job in state.jobs.values() if job.held]:
        if state.jobs[number].state is JobState.PENDING:
            cluster.step(ev.ReleaseRequested(number, "root"))
    for _ in range(5_000):
        running = [job for job in state.jobs.values() if job.occupies and not job.waits_in_slice]
        if not running:
            break
        cluster.end(running[0].id)
        assert_within(state, limits, cluster.now_us)
    never = [job for job in state.jobs.values() if job.state is JobState.PENDING]
    for job in never:
        _, reasons, _ = explain(job, state.snapshot(cluster.now_us), cluster.cycle.policies, Tuning())
        assert reasons, "it could run, and waits"
        assert {reason.code for reason in reasons} - {ReasonCode.PRIORITY}
    assert not state.tally.holds


def test_a_job_that_waits_gets_another_account_and_qos_and_runs_under_their_limits() -> None:
    cluster = Cluster(lab(physics={"running": 1}, fast={"user.running": 1}))
    cluster.submit("bob", "physics")
    waits, array = cluster.submit("bob", "physics"), cluster.submit("bob", "physics", array="0-2")
    cluster.step(ev.JobUpdated(waits, "bob", JobUpdate(account="chess")))
    assert cluster.runs(waits)
    assert cluster.state.jobs[waits].account == "chess"
    cluster.step(ev.JobUpdated(array, "bob", JobUpdate(account="chess", qos="fast")))
    elements = [job for job in cluster.state.jobs.values() if job.array_job == array]
    assert [(job.account, job.qos, job.occupies) for job in elements] == [("chess", "fast", True)]
    assert cluster.code(array) is ReasonCode.QOS_USER_JOBS
    refused = cluster.cycle.step([ev.JobUpdated(array, "bob", JobUpdate(qos="night"))], 0).refused
    assert "run, with what was asked for" in str(refused[0])
    other = cluster.submit("bob", "physics")
    for update, says in (
        (JobUpdate(account="science"), "bob is not in account science"),
        (JobUpdate(qos="night"), "There is no QOS 'night'"),
    ):
        refused = cluster.cycle.step([ev.JobUpdated(other, "bob", update)], 0).refused
        assert says in str(refused[0])
    again = restore_state(dump_state(cluster.state, 0), 0).tally
    assert +again.submitted == +cluster.state.tally.submitted


def test_minutes_that_were_used_count_for_the_account_and_those_above_and_for_the_user_there_alone() -> None:
    """eve is in science; what she used in physics, below it, is not hers in science."""
    limits = {"science": {"billing_minutes": 100}, "eve_science": {"billing_minutes": 50}}
    cluster = Cluster(lab(**limits))
    hour = {"gpus_per_task": 1, "time_limit_us": 40 * MINUTE_US}
    used = cluster.state.ledger.used
    used["physics", "eve"] = Usage(amount=45 * 60.0)
    first, second = cluster.submit("eve", **hour), cluster.submit("ann", **hour)
    assert cluster.runs(first)
    assert cluster.code(second) is ReasonCode.ASSOC_BILLING
    cluster.end(first)
    used["physics", "eve"] = Usage(amount=0.0)
    cluster.step(ev.AccountsSet(lab(**limits), "root"))
    assert cluster.runs(second)
    used["science", "eve"] = Usage(amount=11 * 60.0)
    assert not cluster.runs(cluster.submit("eve", **hour))


@pytest.mark.parametrize("update", [JobUpdate(account="chess"), JobUpdate(priority=0, nice=50)])
def test_what_was_set_aside_for_a_job_that_changes_is_for_others(update: JobUpdate) -> None:
    cluster = Cluster(lab(physics={"cpus": 8}), "backfill")
    cluster.submit("bob", "physics", cpus_per_task=6, time_limit_us=100 * MINUTE_US)
    wide = cluster.submit("bob", "physics", cpus_per_task=8, time_limit_us=100 * MINUTE_US, priority=9)
    narrow = cluster.submit("bob", "physics", cpus_per_task=1, time_limit_us=600 * MINUTE_US)
    assert not cluster.runs(narrow)
    cluster.step(ev.JobUpdated(wide, "root", update))
    assert cluster.runs(narrow)


@pytest.mark.parametrize("queue", ["priority", "backfill"])
@pytest.mark.parametrize(("kinds", "limits"), [(1, 1), (60, 1), (1, 60)])
def test_what_a_limit_refuses_once_there_is_a_place_is_tried_by_few_in_a_turn(
    queue: str, kinds: int, limits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with its hosts it shows whether a job is within a limit of hosts: many of a user wait for it."""
    cluster = Cluster(lab(physics={"hosts": 4}), queue, Tuning(refusals=20))
    tries = Calls(monkeypatch, engine, "place")

    def settle(*events: ev.Event) -> int:
        def turn(number: int) -> int | None:
            cluster.step(*(events if number == 0 else ()))
            return cluster.cycle.next_due_us()

        return tries.busiest(turn, 300)

    def mine(time_limit_us: int = MINUTE_US, **more: Any) -> JobSpec:
        return builders.spec(user="ann", account="physics", time_limit_us=time_limit_us, **more)

    settle(*(ev.JobSubmitted(number, mine(hosts_only=("h0",))) for number in (1, 2)))
    wide = (
        mine(time_limit_us=(1 + n % limits) * MINUTE_US, ntasks=33, mem_bytes_per_task=1 + n % kinds)
        for n in range(60)
    )
    assert settle(*(ev.JobSubmitted(10 + n, one) for n, one in enumerate(wide))) < 30
    assert cluster.state.reasons[69].code is ReasonCode.ASSOC_HOSTS
    settle(ev.AccountsSet(lab(physics={"hosts": 5}), "root"))
    assert len(cluster.state.placed) == 3
