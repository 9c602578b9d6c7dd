"""Usage of accounts: conserved whatever becomes of jobs, and durable."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.state import ClusterState, rebuild
from rm.core.journal.restoring import USED, documents_of, usage_in
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.job import JobState, Placement, TaskPlacement
from rm.core.registry import load
from rm.core.sharing.accounts import Account, Member, checked
from rm.core.sharing.ledger import Billing, Ledger
from rm.core.store import Loaded
from rm.errors import IllegalTransition
from tests import builders
from tests.examples import seeds

S = 1_000_000
PAIRS = [("a", "ann"), ("a", "bob"), ("b", "bob")]
ACCOUNTS = checked([Account("a"), Account("b")], [Member(*pair) for pair in PAIRS])
BILLING = Billing(gpu=4.0, cpu=1.0, mem_gib=0.5, half_life_us=0)


def cluster(billing: Billing = BILLING) -> ClusterState:
    state = ClusterState(accounts=ACCOUNTS, ledger=Ledger(billing))
    for name in ("h1", "h2"):
        do(state, ev.HostAdded(builders.host(name, cpus=64, gpus=4)), 0)
    return state


def do(state: ClusterState, event: ev.Event, now_us: int) -> Changes:
    changes = Changes()
    apply(state, event, now_us, Rules(), changes)
    return changes


def submit(state: ClusterState, number: int, pair: tuple[str, str], now_us: int = 0, **spec: object) -> None:
    do(state, ev.JobSubmitted(number, builders.spec(account=pair[0], user=pair[1], **spec)), now_us)


def place(state: ClusterState, number: int, now_us: int, gpus: tuple[int, ...] = ()) -> Changes:
    tasks = tuple(TaskPlacement(rank, "h1", gpus) for rank in range(state.jobs[number].spec.ntasks))
    return do(state, ev.JobPlaced(number, Placement(tasks)), now_us)


def end(state: ClusterState, number: int, now_us: int) -> Changes:
    job = state.jobs[number]
    return do(state, ev.TaskExited(number, job.attempt, "h1", 0, 0, 0, now_us, now_us), now_us)


def test_a_job_counts_by_what_it_has_for_as_long_as_it_has_it() -> None:
    state = cluster()
    submit(state, 1, ("a", "ann"), cpus_per_task=3, gpus_per_task=2)
    submit(state, 2, ("a", "bob"), exclusive=True)
    place(state, 1, 10 * S, gpus=(0, 1))
    assert state.ledger.amounts(15 * S) == {("a", "ann"): 5 * (3 + 2 * 4)}
    end(state, 1, 20 * S)
    place(state, 2, 20 * S)
    host = state.hosts["h1"]
    whole = host.cpus + 4 * len(host.gpus) + 0.5 * host.mem_bytes / 2**30
    amounts = state.ledger.amounts(22 * S)
    assert amounts == {("a", "ann"): 10 * 11, ("a", "bob"): pytest.approx(2 * whole)}


@pytest.mark.parametrize("seed", seeds(20))
def test_usage_is_conserved_in_any_order_of_events(seed: int) -> None:
    """The sum over all is what all jobs had, second by second; restarts and replays change nothing."""
    chance, state = random.Random(seed), cluster()
    now_us, expected, documents = 0, 0.0, dict[str, dict[str, float]]()
    for number in range(1, 40):
        submit(state, number, chance.choice(PAIRS), cpus_per_task=chance.randrange(1, 4))
        for _ in range(3):
            passed_s = chance.randrange(0, 50)
            expected += passed_s * sum(job.spec.cpus_per_task for job in state.jobs.values() if job.occupies)
            now_us += passed_s * S
            one = chance.choice(list(state.jobs.values()))
            event: ev.Event
            if one.state is JobState.PENDING:
                event = ev.JobPlaced(one.id, Placement((TaskPlacement(0, "h1", ()),)))
            else:
                event = chance.choice([
                    ev.TasksStarted(one.id, one.attempt, "h1", now_us, (0,)),
                    ev.TaskExited(one.id, one.attempt, "h1", 0, 0, 0, now_us, now_us),
                    ev.RequeueRequested(one.id, "root"), ev.CancelRequested(one.id, "root"),
                    ev.HostDown("h1", "dead"),
                ])  # fmt: skip
            try:
                changes = do(state, event, now_us)
            except IllegalTransition:
                continue
            documents |= {name: body for name, body in documents_of(state, changes) if body is not None}
        if chance.random() < 0.3:
            state = restarted(state, documents, now_us)
        if chance.random() < 0.3:
            state = restore_state(dump_state(state, now_us), now_us)
        assert sum(state.ledger.amounts(now_us).values()) == pytest.approx(expected)


def restarted(state: ClusterState, documents: dict[str, dict[str, float]], now_us: int) -> ClusterState:
    """A new daemon's: usage as it was stored, and jobs as they are."""
    assert all(name.startswith(USED) for name in documents)
    loaded = Loaded(0, state.next_job, 1, documents=tuple(documents.items()))
    hosts = [replace(host) for host in state.hosts.values()]
    return rebuild(
        state.jobs.values(), hosts, [], {}, state.next_job, 1, now_us,
        accounts=ACCOUNTS, ledger=Ledger(BILLING, usage_in(loaded)),
    )  # fmt: skip


def test_a_clock_that_is_set_neither_adds_nor_takes_usage() -> None:
    state = cluster()
    submit(state, 1, ("a", "ann"))
    place(state, 1, 10 * S)
    do(state, ev.ClockStepped(3_600 * S), 3_620 * S)
    assert state.ledger.amounts(3_620 * S) == {("a", "ann"): 10.0}


def test_who_has_used_less_comes_first_and_age_makes_up_for_it() -> None:
    state = cluster()
    for number, pair in enumerate((("a", "ann"), ("a", "bob"), ("b", "bob")), 1):
        submit(state, number, pair)
        submit(state, number + 3, pair, now_us=S)
    place(state, 1, 0)
    end(state, 1, 100 * S)
    place(state, 2, 100 * S)
    end(state, 2, 110 * S)
    policy = load("queue", "multifactor")
    snapshot = state.snapshot(200 * S)
    waiting = [state.jobs[number] for number in state.pending]
    order = [job.id for job in policy.order(waiting, snapshot)]
    assert order == [3, 6, 5, 4]  # b used nothing; in a, bob less than ann
    parts = {job.id: policy.parts(job, snapshot) for job in waiting}
    assert (parts[3].fair_share, parts[5].fair_share) == (10_000.0, pytest.approx(10_000 * 2 / 3))
    old = load("queue", "multifactor", {"age_weight": 1e12})
    waiting = [replace(job, submitted_us=0) if job.id == 4 else job for job in waiting]
    assert [job.id for job in old.order(waiting, snapshot)] == [3, 4, 6, 5]
    nice = load("queue", "multifactor", {"fair_share_weight": 0, "size_weight": 10, "age_weight": 0})
    state.jobs[6] = replace(state.jobs[6], spec=replace(state.jobs[6].spec, nice=5, priority=1))
    assert [job.id for job in nice.order([state.jobs[n] for n in (6, 5)], snapshot)] == [5, 6]
    whole = replace(state.jobs[5], spec=replace(state.jobs[5].spec, exclusive=True))
    assert (
        nice.parts(whole, snapshot).size == 10.0 / len(state.hosts) > nice.parts(state.jobs[5], snapshot).size
    )


def committed_by(**spec: object) -> ClusterState:
    """ann has used something, bob nothing yet: a job of his has just been placed. One of each waits."""
    state = cluster()
    for number, (user, asked) in enumerate((("ann", {}), ("bob", spec), ("ann", {}), ("bob", {})), 1):
        submit(state, number, ("a", user), **asked)
    place(state, 1, 0)
    end(state, 1, 100 * S)
    place(state, 2, 100 * S)
    return state


@pytest.mark.parametrize(
    ("spec", "likely_s"),
    [
        ({"time_limit_us": 150 * S}, 75),  # as likely any time until then
        ({"time_limit_us": 900 * S}, 450),
        ({"time_limit_us": 900 * S, "expected_us": 60 * S}, 60),
        ({"time_limit_us": 900 * S, "expected_us": 600 * S}, 600),
        ({}, 0),
    ],
)
def test_for_the_order_a_job_counts_at_once_with_what_it_is_likely_to_use(
    spec: dict[str, object], likely_s: int
) -> None:
    state = committed_by(**spec)
    snapshot = state.snapshot(100 * S)
    assert snapshot.shares.committed.get(("a", "bob"), 0) == likely_s
    waiting = [state.jobs[number] for number in state.pending]
    order = [job.id for job in load("queue", "multifactor").order(waiting, snapshot)]
    assert order == ([3, 4] if likely_s > 100 else [4, 3])
    as_slurm = load("queue", "multifactor", {"committed_weight": 0.0})
    assert [job.id for job in as_slurm.order(waiting, snapshot)] == [4, 3]
    listed = {(one.account, one.user): one.used for one in snapshot.shares.listed()}
    assert (listed["a", "ann"], listed["a", "bob"]) == (100, 0), "sshare tells what was used"


def test_what_is_committed_goes_down_while_the_job_runs_and_ends_with_it() -> None:
    state = committed_by(time_limit_us=900 * S)
    do(state, ev.TasksStarted(2, 1, "h1", 100 * S, (0,)), 100 * S)
    assert state.snapshot(100 * S).shares.committed == {("a", "bob"): 450}
    assert state.snapshot(400 * S).shares.committed == {("a", "bob"): 300}
    end(state, 2, 500 * S)
    assert state.snapshot(500 * S).shares.committed == {}


def test_a_job_that_runs_keeps_the_age_with_which_it_began() -> None:
    state = cluster()
    submit(state, 1, ("a", "ann"))
    policy = load("queue", "multifactor")

    def age(now_us: int) -> float:
        return float(policy.parts(state.jobs[1], state.snapshot(now_us)).age)

    assert 0 < age(100 * S) < age(200 * S)
    at_start = age(200 * S)
    place(state, 1, 200 * S)
    do(state, ev.TasksStarted(1, 1, "h1", 200 * S, (0,)), 200 * S)
    assert age(300 * S) == age(900 * S) == at_start
