"""Partitions with rules: state, tier, who may use them, times and limits; also of jobs that name several."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.explaining import explain
from rm.core.scheduling.limits.admission import admitted
from rm.core.scheduling.queue_position import queue_position
from rm.core.sharing import requests
from rm.core.sharing.accounts import Account, Accounts, Member, Partition, Qos, checked
from rm.core.sharing.partitions import check_partitions
from rm.core.sharing.qos import check_all
from rm.errors import Conflict, ImpossibleRequest, RmError, UsageError
from tests import builders
from tests.examples import seeds

S = 1_000_000
MINUTE_US = 60 * S
QUEUES = ["fifo", "priority", "backfill", "multifactor", "response"]


def lab(*partitions: Partition) -> Accounts:
    """science > physics (ann, bob), chess (eve); the QOS fast and slow."""
    accounts = [Account("science"), Account("physics", "science"), Account("chess")]
    members = [Member("physics", "ann"), Member("physics", "bob"), Member("chess", "eve")]
    made = checked(accounts, members, [Qos("fast", 10), Qos("slow")], partitions=partitions)
    check_all(made)
    check_partitions(made)
    return made


class Cluster:
    """h0 and h1 are in `a`, h1 and h2 in `b`; each has 16 processors and 4 GPUs."""

    def __init__(self, *partitions: Partition, queue: str = "fifo") -> None:
        self.now_us = 1_000 * S
        policies = Policies(load("queue", queue), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(ClusterState(), policies)
        self.rule(*partitions)
        for name, its in (("h0", ("a",)), ("h1", ("a", "b")), ("h2", ("b",))):
            self.step(
                ev.HostAdded(builders.host(name, cpus=16, gpus=4, partitions=its)), ev.HostUp(name, "b", "1")
            )

    @property
    def state(self) -> ClusterState:
        return self.cycle.state

    def rule(self, *partitions: Partition) -> None:
        self.step(ev.AccountsSet(lab(*partitions), "root"))

    def step(self, *events: ev.Event) -> None:
        out = self.cycle.step(events, self.now_us)
        assert not out.refused, out.refused

    def submit(self, user: str = "ann", **spec: object) -> int:
        number = self.state.next_job
        self.step(ev.JobSubmitted(number, builders.spec(user=user, **spec)))
        return number

    def end(self, number: int) -> None:
        job = self.state.jobs[number]
        at = self.now_us
        self.step(*(ev.TaskExited(number, job.attempt, t.host, t.rank, 0, 0, at, at) for t in job.tasks))

    def job(self, number: int) -> Job:
        return self.state.jobs[number]

    def code(self, number: int) -> ReasonCode:
        reason = self.cycle.reason_of(self.job(number))
        assert reason is not None
        return reason.code


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize(("state", "code"), [("down", "PartitionDown"), ("inactive", "PartitionInactive")])
def test_a_partition_that_is_down_starts_nothing_until_it_is_up(queue: str, state: str, code: str) -> None:
    cluster = Cluster(queue=queue)
    runs, later = (
        cluster.submit(partition="a", exclusive=True),
        cluster.submit(partition="a,b", hosts_min=2, ntasks=2),
    )
    assert cluster.job(runs).occupies
    waits = cluster.submit(partition="a", gpus_per_task=4)
    cluster.end(later)
    cluster.rule(Partition("a", state="down"))
    more = cluster.submit(partition="a")
    other = cluster.submit(partition="b")
    cluster.rule(Partition("a", state=state))
    cluster.end(waits)
    assert cluster.job(runs).occupies, "what runs goes on"
    assert cluster.job(other).occupies
    assert not cluster.job(more).occupies
    assert cluster.code(more) == code
    _, reasons, _ = explain(
        cluster.job(more),
        cluster.state.snapshot(cluster.now_us),
        cluster.cycle.policies,
        cluster.cycle.tuning,
    )
    assert reasons[0].code == code
    cluster.rule(Partition("a"))
    assert cluster.job(more).occupies


@pytest.mark.parametrize("state", ["drain", "inactive"])
def test_a_partition_that_drains_takes_no_new_jobs_and_starts_those_that_wait(state: str) -> None:
    cluster = Cluster()
    first = [cluster.submit(partition="a", exclusive=True) for _ in range(2)]
    waits = cluster.submit(partition="a", exclusive=True)
    cluster.rule(Partition("a", state=state))
    with pytest.raises(UsageError, match=f"Partition a takes no new jobs: it is in the state {state}."):
        admitted(cluster.state, [builders.spec(user="ann", partition="a")], Counter(), True)
    admitted(cluster.state, [builders.spec(user="ann", partition="a,b")], Counter(), True)
    cluster.end(first[0])
    assert cluster.job(waits).occupies is (state == "drain")
    held = cluster.submit(partition="b", hold=True)
    out = cluster.cycle.step([ev.JobUpdated(held, "root", JobUpdate(partition="a"))], cluster.now_us)
    assert "takes no new jobs" in str(out.refused[0])


@pytest.mark.parametrize("state", ["drain", "inactive"])
def test_a_new_job_of_several_partitions_leaves_out_those_that_take_no_new_jobs(state: str) -> None:
    cluster = Cluster(Partition("b", state=state))
    full = cluster.submit(partition="a", exclusive=True), cluster.submit(partition="a", exclusive=True)
    new = cluster.submit(partition="a,b")
    assert not cluster.job(new).occupies, "h2, which b alone has, is free"
    assert cluster.job(new).spec.partition == "a"
    moved = cluster.submit(partition="a", hold=True)
    cluster.step(ev.JobUpdated(moved, "root", JobUpdate(partition="b,a")))
    assert cluster.job(moved).spec.partition == "a"
    cluster.rule(Partition("b"))
    assert not cluster.job(new).occupies, "nor does it go there later"
    cluster.end(full[0])
    assert cluster.job(new).occupies


def test_elements_moved_to_several_partitions_stay_out_of_one_that_drains() -> None:
    cluster = Cluster(Partition("b", state="drain"))
    array = cluster.submit(partition="a", hold=True, array="0-3")
    first = cluster.state.next_job
    cluster.step(
        ev.JobUpdated(array, "root", JobUpdate(partition="a,b"), array_tasks="1", first_job=first),
        ev.JobUpdated(array, "root", JobUpdate(comment="later")),
    )
    assert cluster.job(first).spec.partition == "a"


def test_only_accounts_and_qos_that_are_allowed_use_a_partition() -> None:
    cluster = Cluster(Partition("a", accounts=("science",)), Partition("b", qos=("fast",)))
    assert cluster.job(cluster.submit("ann", partition="a")).occupies
    assert cluster.job(cluster.submit("eve", partition="b", qos="fast")).occupies
    for user, qos, partition, said in (
        ("eve", "", "a", "Partition a is not for account chess, but for science."),
        ("eve", "slow", "b", "Partition b is not for jobs of QOS slow, but for those of fast."),
        ("nobody", "", "b", "Partition b is not for jobs without a QOS, but for those of fast."),
        ("nobody", "", "a", "Partition a is not for jobs without an account, but for science."),
        ("eve", "slow", "a,b", "Partition a is not for account chess, but for science; "
         "partition b is not for jobs of QOS slow, but for those of fast."),
    ):  # fmt: skip
        with pytest.raises(UsageError) as refusal:
            admitted(cluster.state, [builders.spec(user=user, qos=qos, partition=partition)], Counter(), True)
        assert refusal.value.what == said


def test_who_waits_and_is_shut_out_later_waits_for_that() -> None:
    cluster = Cluster()
    held = [cluster.submit("eve", partition="a", hold=True), cluster.submit("eve", partition="b", hold=True)]
    both = cluster.submit("eve", partition="a,b", hold=True)
    cluster.rule(Partition("a", accounts=("science",)), Partition("b", qos=("fast",)))
    for number in (*held, both):
        cluster.step(ev.ReleaseRequested(number, "root"))
    assert cluster.code(held[0]) == "AccountNotAllowed"
    assert cluster.code(held[1]) == "QOSNotAllowed"
    assert cluster.code(both) == "AccountNotAllowed"
    cluster.rule(Partition("a", accounts=("science",)))
    assert [cluster.job(one).occupies for one in (*held, both)] == [False, True, True]
    assert cluster.job(both).partition == "b"


@pytest.mark.parametrize("queue", QUEUES)
def test_of_several_partitions_a_job_runs_in_the_first_that_is_open_and_has_room(queue: str) -> None:
    cluster = Cluster(Partition("a", limits={"running": 1}), Partition("b"), queue=queue)
    jobs = [cluster.submit(partition="a,b") for _ in range(3)]
    assert [cluster.job(one).partition for one in jobs] == ["a", "b", "b"]
    full = cluster.submit(partition="a")
    assert cluster.code(full) == "QOSGrpJobsLimit"
    assert "partition a has 1 of at most 1 running jobs" in cluster.cycle.reason_of(cluster.job(full)).message
    cluster.end(jobs[0])
    assert cluster.job(full).occupies
    large = [cluster.submit(partition="b", exclusive=True) for _ in range(2)]
    waits = cluster.submit(partition="a,b", exclusive=True)
    assert not cluster.job(waits).occupies
    cluster.end(full)  # the limit of a is lifted, h0 is idle
    assert cluster.job(waits).partition == "a"
    for one in (*jobs[1:], *large, waits):
        if cluster.job(one).occupies:
            cluster.end(one)
    assert not any(any(has) for has in cluster.state.tally.in_use.values())


def test_a_job_that_only_some_partitions_may_take_starts_when_one_of_these_has_room() -> None:
    cluster = Cluster(Partition("a", limits={"running": 1}))
    one = cluster.submit(partition="a", hosts_only=("h0",))
    two = [cluster.submit(partition="b", exclusive=True) for _ in range(2)]
    waits = cluster.submit(partition="a,b", gpus_per_task=1)
    assert not cluster.job(waits).occupies
    cluster.end(two[1])
    assert cluster.job(waits).partition == "b"
    assert cluster.job(one).occupies


def test_times_and_hosts_of_a_partition_have_slurms_reasons() -> None:
    rules = Partition("a", default_minutes=30, limits={"job.minutes": 60, "job.hosts": 1})
    cluster = Cluster(rules, Partition("b", default_minutes=10))
    assert cluster.job(cluster.submit(partition="a")).spec.time_limit_us == 30 * MINUTE_US
    assert cluster.job(cluster.submit(partition="a,b")).spec.time_limit_us == 10 * MINUTE_US
    told = cluster.job(cluster.submit(partition="a,b")).history[0][1]
    assert told == "submitted by ann; its time limit is the default of partition b, 10:00"
    assert cluster.job(cluster.submit(partition="a", time_limit_us=S)).spec.time_limit_us == S
    assert cluster.job(cluster.submit()).spec.time_limit_us is None
    long, wide = {"time_limit_us": 61 * MINUTE_US}, {"hosts_min": 2, "ntasks": 2}
    for ask, code in ((long, "PartitionTimeLimit"), (wide, "PartitionNodeLimit")):
        waits = cluster.submit(partition="a", **ask)
        assert cluster.code(waits) == code
        with pytest.raises(ImpossibleRequest, match=code):
            admitted(cluster.state, [builders.spec(user="ann", partition="a", **ask)], Counter(), True)
        admitted(cluster.state, [builders.spec(user="ann", partition="a,b", **ask)], Counter(), True)
    assert cluster.job(cluster.submit(partition="a,b", **long)).partition == "b"
    cluster.rule(Partition("a", limits={"job.minutes": 60}))
    longest = cluster.job(cluster.submit(partition="a"))
    assert longest.spec.time_limit_us == 60 * MINUTE_US
    assert longest.history[0][1].endswith("its time limit is the longest of partition a, 1:00:00")


def test_submitted_jobs_count_in_each_partition_until_they_have_one() -> None:
    cluster = Cluster(Partition("a", limits={"user.submitted": 2}), Partition("b", state="down"))
    full = [cluster.submit("bob", partition="a", exclusive=True) for _ in range(2)]
    cluster.submit("ann", partition="a,b")
    spec = builders.spec(user="ann", partition="a")
    admitted(cluster.state, [spec], Counter(), True)
    with pytest.raises(Conflict, match="QOSMaxSubmitJobPerUserLimit"):
        admitted(cluster.state, [spec, spec], Counter(), True)
    cluster.rule(Partition("a", limits={"user.submitted": 2}), Partition("b"))
    other = cluster.submit("bob", partition="b", hold=True)
    moved = ev.JobUpdated(other, "root", JobUpdate(partition="a"))
    refused = cluster.cycle.step([moved], cluster.now_us).refused
    assert "at most 2 submitted jobs" in str(refused[0])
    cluster.end(full[0])
    cluster.step(moved)
    assert (
        cluster.state.tally.submitted
        == restore_state(dump_state(cluster.state, cluster.now_us), cluster.now_us).tally.submitted
    )


@pytest.mark.parametrize("queue", QUEUES)
def test_jobs_of_a_higher_tier_come_first(queue: str) -> None:
    cluster = Cluster(Partition("a", tier=1), Partition("b", tier=5), queue=queue)
    busy = [cluster.submit(exclusive=True) for _ in range(3)]
    low = cluster.submit(partition="a", exclusive=True, hosts_only=("h1",))
    none = cluster.submit(exclusive=True, hosts_only=("h1",))
    high = cluster.submit(partition="a,b", exclusive=True, hosts_only=("h1",))
    pending = [cluster.job(one) for one in cluster.state.pending]
    found = queue_position(
        cluster.job(low), pending, cluster.cycle.policies.queue, cluster.state.snapshot(cluster.now_us)
    )
    assert found is not None
    assert [one.id for one in found.ahead] == [high]
    cluster.end(busy[1])
    assert [cluster.job(one).occupies for one in (high, low, none)] == [True, False, False]


def test_the_factor_of_partitions_counts_against_the_highest() -> None:
    cluster = Cluster(Partition("a", priority=10), Partition("b", priority=40), queue="multifactor")
    parts = cluster.cycle.policies.queue.parts
    snapshot = cluster.state.snapshot(cluster.now_us)
    found = [parts(Job(1, builders.spec(partition=name), 0), snapshot) for name in ("", "a", "a,b", "c")]
    assert [one.partition for one in found] == [0.0, 2_500.0, 10_000.0, 0.0]
    assert [one.partitions for one in found] == [{}, {}, {"a": 2_500.0, "b": 10_000.0}, {}]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"name": "a b"}, "'a b' is no name of a partition."),
        ({"name": "g", "state": "gone"}, "The state of partition g is 'gone'."),
        ({"name": "g", "tier": -1}, "The tier of partition g is -1."),
        ({"name": "g", "accounts": ["sport"]}, "Partition g is for 'sport', which is no account."),
        ({"name": "g", "qos": ["slower"]}, "Partition g is for 'slower', which is no QOS."),
        ({"name": "g", "limits": {"billing_minutes": 1}}, "Partition g has no limit 'billing_minutes'."),
        (
            {"name": "g", "default_minutes": 9, "limits": {"job.minutes": 8}},
            "The default time of partition g is 9 minutes, and its jobs have at most 8.",
        ),
        ({"name": "a"}, "Partition a has rules already."),
    ],
)
def test_what_is_wrong_with_rules_is_a_sentence_and_changes_nothing(wanted, says) -> None:
    old = lab(Partition("a"))
    with pytest.raises(RmError) as refusal:
        requests.add_partition(old, wanted)
    assert refusal.value.what == says


def test_what_a_partition_names_cannot_go() -> None:
    from rm.core.sharing.accounts import without_account
    from rm.core.sharing.qos import without_qos

    old = lab(Partition("a", accounts=("chess",), qos=("fast",)))
    old = requests.remove_members(old, "chess", ["eve"])
    for remove in (lambda: without_account(old, "chess"), lambda: without_qos(old, "fast")):
        with pytest.raises(Conflict, match="Partition a is for"):
            remove()


@pytest.mark.parametrize("seed", seeds(20))
def test_limits_of_partitions_are_never_exceeded_and_nobody_waits_for_nothing(seed: int) -> None:
    rng = random.Random(seed)

    measures = ["running", "gpus", "user.running", "user.gpus"]
    rules = tuple(
        Partition(
            name,
            tier=rng.randint(1, 2),
            limits={measure: rng.randint(1, 3) for measure in rng.sample(measures, 2)},
        )
        for name in "ab"
    )
    cluster = Cluster(*rules, queue=rng.choice(QUEUES))
    state = cluster.state

    def check() -> None:
        for one in rules:
            inside = [job for job in state.jobs.values() if job.occupies and _where(job) == one.name]
            for measure, limit in one.limits.items():
                each, _, what = measure.rpartition(".")
                for users in [{user} for user in ("ann", "eve")] if each else [{"ann", "eve"}]:
                    mine = [job for job in inside if job.spec.user in users]
                    used = len(mine) if what == "running" else sum(job.spec.gpus_per_task for job in mine)
                    assert used <= limit, (one.name, measure)

    for _ in range(80):
        cluster.now_us += S
        running = [job.id for job in state.jobs.values() if job.occupies]
        match rng.choice(["submit", "submit", "end", "down", "rules"]):
            case "submit":
                where = rng.choice(["a", "b", "a,b", "b,a"])
                cluster.submit(
                    rng.choice(["ann", "eve"]),
                    partition=where,
                    gpus_per_task=rng.randint(0, 2),
                    time_limit_us=rng.randint(1, 9) * MINUTE_US,
                )
            case "end" if running:
                cluster.end(rng.choice(running))
            case "down":
                name = rng.choice(["h0", "h1", "h2"])
                cluster.step(ev.HostDown(name, "lost"))
                cluster.step(ev.HostUp(name, "b", "1"))
            case "rules" if rng.random() < 0.2:
                higher = {one.name: {k: v + 1 for k, v in one.limits.items()} for one in rules}
                rules = tuple(Partition(one.name, tier=one.tier, limits=higher[one.name]) for one in rules)
                cluster.rule(*rules)
        check()
        again = restore_state(dump_state(state, cluster.now_us), cluster.now_us).tally
        assert {k: v for k, v in again.in_use.items() if any(v)} == {
            k: v for k, v in state.tally.in_use.items() if any(v)
        }
        assert +again.submitted == +state.tally.submitted
    for number in [job.id for job in state.jobs.values() if job.held]:
        cluster.step(ev.ReleaseRequested(number, "root"))
    for _ in range(500):
        cluster.now_us += 3_600 * S  # nobody waits any more after the loss of a host
        cluster.step()
        running = [job.id for job in state.jobs.values() if job.occupies]
        if not running:
            break
        cluster.end(running[0])
        check()
    left = [job for job in state.jobs.values() if job.state is JobState.PENDING]
    for job in left:
        assert all(job.spec.gpus_per_task > _most_gpus(rules, name) for name in job.spec.partitions), (
            "it could run"
        )


def _where(job: Job) -> str:
    return job.partition or job.spec.partition


def _most_gpus(rules: tuple[Partition, ...], name: str) -> int:
    limits = next(one.limits for one in rules if one.name == name)
    return min(limits.get("gpus", 4), limits.get("user.gpus", 4))
