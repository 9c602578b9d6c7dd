"""Preemption that lets jobs stand still, and preemption by the tiers of partitions, in any order."""

from __future__ import annotations

import random
from itertools import product

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Freeze, Launch, Stop
from rm.core.jobs.strays import Held
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.job import Job, JobState
from rm.core.sharing.accounts import Accounts, Partition, Qos
from rm.core.sharing.partitions import check_partitions
from rm.core.sharing.preempt_terms import may_preempt, terms_of
from rm.core.sharing.qos import check_all
from rm.errors import UsageError
from tests import builders
from tests.examples import seeds
from tests.invariants import validate_state
from tests.unit.test_preemption import QUEUES, Cluster, S, qos


def tiers(mode: str = "requeue", grace_s: float = 0.0, exempt_s: float = 0.0) -> Accounts:
    """`debug` stands above `batch`, and `free` beside it, without being preempted."""
    low = Partition("batch", preempt_mode=mode, grace_s=grace_s, exempt_s=exempt_s)
    made = Accounts(partitions=(low, Partition("free"), Partition("debug", tier=10)))
    check_partitions(made)
    return made


def parted(accounts: Accounts, queue: str = "fifo", hosts: int = 1) -> Cluster:
    """All hosts are in all partitions."""
    cluster = Cluster(accounts, queue, 0)
    for number in range(hosts):
        host = builders.host(f"h{number}", cpus=16, gpus=4, partitions=("batch", "free", "debug"))
        cluster.step(ev.HostAdded(host), ev.HostUp(host.name, "boot", "1"))
    return cluster


def cpus(number: int, **spec: object) -> dict[str, object]:
    return {"gpus": 0, "cpus_per_task": number, **spec}


@pytest.mark.parametrize("queue", QUEUES)
def test_a_job_stands_still_for_another_and_goes_on_after_it(queue: str) -> None:
    cluster = Cluster(qos("suspend"), queue)
    low = cluster.submit(**cpus(12))
    cluster.start(low)
    cluster.later(100)
    urgent = cluster.submit("urgent", **cpus(8))
    assert [type(action) for action in cluster.actions] == [Freeze, Launch], (
        "it stands before the other begins"
    )
    freeze = cluster.actions[0]
    assert isinstance(freeze, Freeze)
    assert (freeze.frozen, freeze.lends) == (True, True)
    assert (cluster.of(low), cluster.of(urgent)) == (JobState.SUSPENDED, JobState.CONFIGURING)
    assert cluster.state.jobs[low].yields_to == (urgent,)
    reason = cluster.state.jobs[low].reason
    assert reason is not None
    assert reason.message == f"suspended for job {urgent} of QOS urgent"
    assert f"job {low} stands still for it" in [what for _, what in cluster.state.jobs[urgent].history]
    cluster.start(urgent)
    cluster.later(50)
    small = cluster.submit(**cpus(1))
    assert cluster.of(small) is JobState.CONFIGURING, "of the 16 processors 12 are theirs"
    more = cluster.submit(**cpus(5))
    assert cluster.of(more) is JobState.PENDING, "what is left of the lent ones nobody else gets"
    cluster.end(urgent)
    assert cluster.of(low) is JobState.RUNNING
    assert Freeze(low, 1, "h0", False, 2) in cluster.actions
    job = cluster.state.jobs[low]
    assert (job.yields_to, job.stood_us, job.reason) == ((), 50 * S, None)
    assert [what for _, what in job.history][-2:] == [
        f"suspended for job {urgent} of QOS urgent", f"goes on after job {urgent}"
    ]  # fmt: skip
    validate_state(cluster.state)


@pytest.mark.parametrize("asked", [{"gpus": 1}, {"gpus": 0, "mem_bytes_per_task": 10 << 30},
                                   {"gpus": 0, "exclusive": True}])  # fmt: skip
def test_nobody_stands_still_where_that_frees_nothing(asked: dict[str, object]) -> None:
    """A job that stands still keeps its memory and its GPUs."""
    cluster = Cluster(qos("suspend"))
    mem = cluster.state.hosts["h0"].mem_bytes - (1 << 30)
    low = cluster.submit(gpus=4, cpus_per_task=16, mem_bytes_per_task=mem)
    cluster.start(low)
    urgent = cluster.submit("urgent", **asked)
    cluster.later(100)
    assert (cluster.of(low), cluster.of(urgent)) == (JobState.RUNNING, JobState.PENDING)


def test_a_job_stands_still_for_several_until_the_last_has_ended() -> None:
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    first, second = cluster.submit("urgent", **cpus(8)), cluster.submit("urgent", **cpus(8))
    assert cluster.state.jobs[low].yields_to == (first, second)
    third = cluster.submit("urgent", **cpus(8))
    assert cluster.of(third) is JobState.PENDING, "all 16 are lent"
    cluster.start(first, second)
    cluster.end(first)
    assert cluster.state.jobs[low].yields_to == (second,)
    cluster.later(61)
    assert cluster.of(third) is JobState.CONFIGURING
    cluster.start(third)
    cluster.end(second)
    assert cluster.of(low) is JobState.SUSPENDED
    cluster.end(third)
    assert cluster.of(low) is JobState.RUNNING
    validate_state(cluster.state)


def test_nothing_is_lent_beside_what_was_given_up_and_still_runs() -> None:
    """It may run on what was lent to it before its host was lost."""
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    cluster.step(ev.StrayFound(99, 1, "h0", True, Held((0,), 16)))
    urgent = cluster.submit("urgent", **cpus(8))
    assert (cluster.of(low), cluster.of(urgent)) == (JobState.RUNNING, JobState.PENDING)
    cluster.step(ev.StrayEnded(99, 1, "h0", 0))
    cluster.later(1)
    assert (cluster.of(low), cluster.of(urgent)) == (JobState.SUSPENDED, JobState.CONFIGURING)
    validate_state(cluster.state)


def test_a_gang_stands_still_as_a_whole_and_the_fewest_do() -> None:
    cluster = Cluster(qos("suspend"), hosts=3)
    gang = cluster.submit(ntasks=2, **cpus(16))
    cluster.start(gang)
    one = cluster.submit(**cpus(16))
    cluster.start(one)
    cluster.submit("urgent", **cpus(16))
    standing = [job for job in (gang, one) if cluster.of(job) is JobState.SUSPENDED]
    assert len(standing) == 1
    cluster.submit("urgent", ntasks=2, **cpus(16))
    assert {cluster.of(gang), cluster.of(one)} == {JobState.SUSPENDED}
    frozen = {(a.job, a.host) for a in cluster.actions if isinstance(a, Freeze)}
    assert not {(gang, "h0"), (gang, "h1")} & frozen or {(gang, "h0"), (gang, "h1")} <= frozen


def test_some_go_and_others_stand_still_for_one_job() -> None:
    low, spare = Qos("batch", preempt_mode="suspend"), Qos("spare")
    cluster = Cluster(Accounts(qos=(low, spare, Qos("urgent", 10, preempts=("batch", "spare")))))
    stands = cluster.submit("batch", **cpus(8))
    goes = cluster.submit("spare", **cpus(8))
    cluster.start(stands, goes)
    urgent = cluster.submit("urgent", **cpus(16))
    assert (cluster.of(stands), cluster.of(goes)) == (JobState.RUNNING, JobState.COMPLETING)
    cluster.end(goes, signal=15)
    assert (cluster.of(stands), cluster.of(urgent)) == (JobState.SUSPENDED, JobState.CONFIGURING)
    assert cluster.of(goes) is JobState.PENDING


def test_who_is_lent_to_may_be_preempted_and_hands_on_what_he_borrowed() -> None:
    chain = (
        Qos("low", preempt_mode="suspend"),
        Qos("middle", preempt_mode="suspend", preempts=("low",)),
        Qos("high", preempts=("middle",)),
    )
    cluster = Cluster(Accounts(qos=chain))
    low = cluster.submit("low", **cpus(16))
    cluster.start(low)
    middle = cluster.submit("middle", **cpus(16))
    cluster.start(middle)
    high = cluster.submit("high", **cpus(16))
    cluster.start(high)
    assert [cluster.of(job) for job in (low, middle, high)] == [JobState.SUSPENDED] * 2 + [JobState.RUNNING]
    validate_state(cluster.state)
    cluster.step(ev.CancelRequested(middle, "ann"))
    cluster.end(middle, signal=15)
    assert cluster.state.jobs[low].yields_to == (high,), "its heir"
    validate_state(cluster.state)
    cluster.end(high)
    assert cluster.of(low) is JobState.RUNNING


@pytest.mark.parametrize(
    ("event", "story", "code"),
    [
        (ev.RequeueRequested, "requeued by ann", 15),
        (ev.CancelRequested, "cancelled by ann", 15),
        (None, "its script has ended", 0),
        (None, "task 0 on h0 exited with code 3", 3),
    ],
)
def test_how_a_job_that_stood_still_ends_is_not_said_by_why_it_stood(
    event: type | None, story: str, code: int
) -> None:
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16, launch="batch"))
    cluster.start(low)
    urgent = cluster.submit("urgent", **cpus(16))
    cluster.start(urgent)
    if event is not None:
        cluster.step(event(low, "ann"))
    cluster.step(ev.TaskExited(low, 1, "h0", 0, 0 if event else code, code if event else 0, None, S))
    job = cluster.state.jobs[low]
    assert job.yields_to == ()
    said = (
        [one.why for one in job.earlier]
        if event is ev.RequeueRequested
        else [what for _, what in job.history]
    )
    assert story in said
    assert "suspended" not in (job.reason.message if job.reason is not None else "")
    if event is ev.RequeueRequested:
        assert said == [story]
    cluster.end(urgent)
    validate_state(cluster.state)


def test_a_host_that_cannot_start_a_job_is_named_also_while_the_job_stands_still() -> None:
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    cluster.submit("urgent", **cpus(16))
    cluster.step(ev.LaunchFailed(low, 1, "h0", "root-refused", "root runs no job"))
    job = cluster.state.jobs[low]
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert "root runs no job" in job.reason.message


def test_a_job_goes_on_if_who_inherits_from_its_preemptor_is_not_on_its_hosts() -> None:
    chain = (
        Qos("low", preempt_mode="suspend"),
        Qos("middle", preempt_mode="suspend", preempts=("low",)),
        Qos("high", preempts=("middle",)),
    )
    cluster = Cluster(Accounts(qos=chain), hosts=2)
    low = cluster.submit("low", hosts_only=("h0",), **cpus(16))
    cluster.start(low)
    middle = cluster.submit("middle", ntasks=2, **cpus(16))
    cluster.start(middle)
    high = cluster.submit("high", hosts_only=("h1",), **cpus(16))
    cluster.start(high)
    assert cluster.state.jobs[low].yields_to == (middle,)
    assert cluster.state.jobs[middle].yields_to == (high,)
    cluster.step(ev.CancelRequested(middle, "ann"))
    cluster.end(middle, signal=15)
    assert cluster.of(low) is JobState.RUNNING, "nobody on its host has its processors"
    validate_state(cluster.state)


def test_users_let_go_on_what_stands_still_for_jobs_that_were_lost() -> None:
    """A row of the database that cannot be read is left out, and its job with it."""
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    urgent = cluster.submit("urgent", **cpus(16))
    cluster.state.vacate(cluster.state.jobs.pop(urgent))
    cluster.step(ev.ResumeRequested(low, "ann"))
    assert cluster.of(low) is JobState.RUNNING
    assert cluster.state.jobs[low].yields_to == ()
    assert cluster.state.jobs[low].reason is None
    validate_state(cluster.state)


def test_users_cannot_let_go_on_what_stands_still_for_others() -> None:
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    urgent = cluster.submit("urgent", **cpus(16))
    out = cluster.cycle.step([ev.ResumeRequested(low, "ann")], cluster.now_us)
    assert f"it was suspended for job {urgent}, and goes on when that has ended" in str(out.refused[0])


def test_what_its_user_suspended_lends_nothing() -> None:
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    cluster.step(ev.SuspendRequested(low, "ann"))
    urgent = cluster.submit("urgent", **cpus(16))
    assert cluster.of(urgent) is JobState.PENDING
    cluster.step(ev.ResumeRequested(low, "ann"))
    cluster.later(2)
    assert cluster.of(urgent) is JobState.CONFIGURING


def test_elements_of_an_array_borrow_one_after_the_other_and_none_waits_in_line() -> None:
    cluster = Cluster(qos("suspend"), slice_us=60 * S)
    low = cluster.submit(array="0-99", **cpus(16))
    for _ in range(3):
        running = [job for job in cluster.state.jobs.values() if job.occupies]
        assert [job.slice_of for job in running] == [0], "a slice could not stand still"
        cluster.start(running[0].id)
        cluster.now_us += S // 10
        cluster.end(running[0].id)
    (running,) = [job for job in cluster.state.jobs.values() if job.occupies]
    cluster.start(running.id)
    urgent = cluster.submit("urgent", array="0-1", **cpus(8))
    cluster.later(1)
    cluster.later(1)
    mine = [job.id for job in cluster.state.jobs.values() if job.array_job == urgent]
    assert cluster.state.jobs[running.id].yields_to == tuple(mine)
    assert len(mine) == 2
    assert low in cluster.state.pending


def test_who_stands_still_for_whom_outlives_the_daemon() -> None:
    cluster = Cluster(qos("suspend"))
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    cluster.submit("urgent", **cpus(8))
    again = restore_state(dump_state(cluster.state, cluster.now_us), cluster.now_us)
    assert again.yielding == cluster.state.yielding == {low}
    assert again.free == cluster.state.free


@pytest.mark.parametrize(
    ("mode", "becomes"),
    [("requeue", JobState.COMPLETING), ("suspend", JobState.SUSPENDED), ("off", JobState.RUNNING)],
)
def test_a_job_of_a_higher_tier_preempts_as_the_partition_below_says(mode: str, becomes: JobState) -> None:
    cluster = parted(tiers(mode))
    low = cluster.submit("", partition="batch", **cpus(16))
    cluster.start(low)
    high = cluster.submit("", partition="debug", **cpus(16))
    assert cluster.of(low) is becomes
    if becomes is JobState.COMPLETING:
        assert f"preempted by job {high} of partition debug" in cluster.state.jobs[low].history[-1][1]


def test_one_tier_does_not_preempt_itself_nor_a_partition_without_a_mode() -> None:
    cluster = parted(tiers())
    same, beside = cluster.submit("", gpus=2, partition="batch"), cluster.submit("", gpus=2, partition="free")
    cluster.start(same, beside)
    cluster.submit("", gpus=2, partition="batch")
    assert cluster.of(same) is JobState.RUNNING
    cluster.submit("", gpus=2, partition="debug")
    assert (cluster.of(same), cluster.of(beside)) == (JobState.COMPLETING, JobState.RUNNING)


def test_exempt_time_and_grace_are_those_of_the_partition() -> None:
    cluster = parted(tiers(grace_s=120, exempt_s=100))
    low = cluster.submit("", gpus=4, partition="batch")
    cluster.start(low)
    cluster.submit("", gpus=4, partition="debug")
    cluster.later(99)
    assert cluster.of(low) is JobState.RUNNING
    cluster.later(1)
    assert cluster.actions == [Stop(low, 1, "h0", 120 * S, "abort")]


@pytest.mark.parametrize("mode", ["requeue", "suspend"])
def test_of_several_partitions_that_one_preempts_which_stands_above(mode: str) -> None:
    cluster = parted(tiers(mode))
    low = cluster.submit("", partition="batch", **cpus(16))
    cluster.start(low)
    high = cluster.submit("", partition="free,debug", **cpus(16))
    assert cluster.of(low) in (JobState.COMPLETING, JobState.SUSPENDED)
    if mode == "suspend":
        assert cluster.state.jobs[high].partition == "debug"


def test_no_two_jobs_preempt_each_other_by_qos_and_tier() -> None:
    """Whatever the QOS and partitions are, "goes for" has no circle."""
    names = ("x", "y")
    for modes, order in product(product(("off", "requeue"), repeat=3), ((1, 2, 3), (3, 2, 1), (1, 1, 2))):
        parts = tuple(
            Partition(f"p{n}", tier=tier, preempt_mode=mode)
            for n, (mode, tier) in enumerate(zip(modes, order, strict=True))
        )
        made = Accounts(qos=(Qos("x", preempts=("y",)), Qos("y")), partitions=parts)
        kinds = list(product(names, ("p0", "p1", "p2", "")))
        jobs = {
            kind: Job(n, builders.spec(partition=kind[1]), 0, qos=kind[0]) for n, kind in enumerate(kinds)
        }
        goes = {a: [b for b in kinds if terms_of(made, *a, jobs[b]) is not None] for a in kinds}
        assert all(may_preempt(made, jobs[a]) or not goes[a] for a in kinds)
        for start in kinds:
            seen, ways = set(), [start]
            while ways:
                for one in goes[ways.pop()]:
                    assert one != start, f"{start} would preempt itself at last: {made}"
                    if one not in seen:
                        seen.add(one)
                        ways.append(one)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Partition("a", preempt_mode="kill"), "preempt mode of partition a is 'kill'"),
        (Partition("a", grace_s=-1.0), "grace of partition a is -1"),
        (Partition("a", exempt_s=float("nan")), "exempt time of partition a is nan"),
    ],
)
def test_wrong_rules_are_refused(wrong: Partition, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_partitions(Accounts(partitions=(wrong,)))


@pytest.mark.parametrize("seed", seeds(40))
def test_in_any_order_of_events_nobody_has_the_processors_of_others(seed: int) -> None:
    """`validate_state` adds up who runs on each host; at the end nothing stands still."""
    rng = random.Random(seed)
    made = Accounts(
        qos=(
            Qos("batch", preempt_mode="suspend"),
            Qos("spare", preempt_mode=rng.choice(["requeue", "cancel"])),
            Qos("urgent", preempts=("batch", "spare"), preempt_mode=rng.choice(["suspend", "off"])),
            Qos("first", preempts=("urgent",)),
        ),
        partitions=(Partition("batch", preempt_mode="suspend"), Partition("debug", tier=rng.choice([1, 2]))),
    )
    check_all(made)
    cluster = parted(made, rng.choice(QUEUES), rng.randint(1, 3))
    state = cluster.state
    for _ in range(60):
        placed = [number for number in state.placed if not state.jobs[number].array]
        what = rng.random()
        if what < 0.45 or not placed:
            kind = rng.choice(["batch", "batch", "spare", "urgent", "first"])
            shape = rng.choice([{}, {"ntasks": 2}, {"array": "0-2"}, {"gpus_per_host": 1}])
            partition = rng.choice(["", "batch", "debug", "free,debug"])
            asked = cpus(rng.randint(1, 16), time_limit_us=rng.choice([None, 600 * S]), partition=partition)
            cluster.submit(kind, **{**asked, **shape})
        elif what < 0.75:
            cluster.end(rng.choice(placed), signal=rng.choice([0, 15]))
        elif what < 0.85:
            cluster.cycle.step([ev.CancelRequested(rng.choice(placed), "ann")], cluster.now_us)
        for number in [n for n in state.placed if state.jobs[n].state is JobState.CONFIGURING]:
            if rng.random() < 0.8:
                cluster.start(number)
        cluster.later(rng.choice([0, 1, 61]))
        validate_state(state)
        for number in state.yielding:
            job = state.jobs[number]
            for by in job.yields_to:
                assert by in state.placed
    while state.placed or state.pending:
        for number in list(state.pending):
            cluster.cycle.step([ev.CancelRequested(number, "ann")], cluster.now_us)
        for number in [n for n in state.placed if not state.jobs[n].yields_to]:
            cluster.end(number)
            validate_state(state)
    assert not state.yielding


def test_nothing_is_let_go_before_all_hosts_that_are_lost_at_once_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step gives up a part of them. The first job that is back must not go before a later one above it."""
    monkeypatch.setattr("rm.core.scheduling.due.AT_ONCE", 2)
    cluster = Cluster(qos("suspend"), "priority", hosts=4)
    low = cluster.submit(**cpus(16))
    cluster.start(low)
    above = [cluster.submit("urgent", **cpus(16, priority=9 * (n == 2))) for n in range(3)]
    cluster.start(*above)
    lost = [cluster.state.placed[number].placement.hosts[0] for number in above]
    cluster.step(*(ev.HostSilent(host, "no answer") for host in lost))
    cluster.later(3_600)
    for _ in range(5):
        cluster.later(1)
    assert [cluster.of(number) for number in above] == [
        JobState.PENDING,
        JobState.PENDING,
        JobState.CONFIGURING,
    ]
    assert cluster.of(low) is JobState.SUSPENDED
