"""--switches: hosts below few leaves, as long as the job waits for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.jobs import events as ev
from rm.core.jobs.room import admits
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.acceptance import accept
from rm.core.model.job import JobState
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import Snapshot
from rm.core.model.switches import insists_until_us
from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning, place
from rm.core.scheduling.explaining import explain
from rm.core.scheduling.racks import RACKS_ADDED, SETS_ASKED, Rack, racks_of, sets_of
from rm.errors import UsageError
from rm.submission.switches import switches
from tests import builders
from tests.examples import examples
from tests.unit.test_job_arrays import Cluster

S = JobState
MINUTE_US = 60_000_000


def racked(leaves: str) -> Cluster:
    """A cluster of hosts with one processor, each below the leaf of its letter."""
    cluster = Cluster(hosts=0)
    named = [(f"h{n}", leaf) for n, leaf in enumerate(leaves)]
    variables = [(("rm_leaf", leaf),) if leaf != "-" else () for _, leaf in named]
    hosts = [
        builders.host(name, cpus=1, variables=given)
        for (name, _), given in zip(named, variables, strict=True)
    ]
    cluster.do(*map(ev.HostAdded, hosts))
    cluster.do(*(ev.HostUp(host.name, "boot", "1") for host in hosts))
    return cluster


def submit(cluster: Cluster, **spec: Any) -> int:
    return cluster.submit("", **{"switches": 1, **spec})


def state_of(cluster: Cluster, job: int) -> tuple[JobState, tuple[str, ...]]:
    found = cluster.state.jobs[job]
    return found.state, found.placement.hosts if found.placement else ()


def test_a_job_waits_for_one_rack_says_so_and_then_takes_any() -> None:
    cluster = racked("aabb")
    for name in ("h1", "h3"):
        submit(cluster, hosts_only=(name,))
    job = submit(cluster, ntasks=2, switches_wait_us=MINUTE_US)
    assert state_of(cluster, job) == (S.PENDING, ())
    snapshot = cluster.state.snapshot(cluster.now_us)
    (said,) = explain(cluster.state.jobs[job], snapshot, cluster.cycle.policies, Tuning())[1]
    assert said == cluster.cycle.reason_of(cluster.state.jobs[job])
    assert (said.code, said.numbers) == (ReasonCode.RESOURCES, (("switches", 1),))
    assert "not below one leaf" in said.message
    due_us = cluster.cycle.next_due_us()
    assert due_us == cluster.now_us + MINUTE_US
    cluster.now_us = due_us - 20
    cluster.do()
    assert state_of(cluster, job) == (S.PENDING, ())
    cluster.do()
    assert state_of(cluster, job) == (S.CONFIGURING, ("h0", "h2"))


def test_a_rack_that_comes_free_is_taken_before_the_time_is_over() -> None:
    cluster = racked("aabb")
    blocking = [submit(cluster, hosts_only=(name,)) for name in ("h1", "h3")]
    job = submit(cluster, ntasks=2)
    cluster.end(cluster.state.jobs[blocking[1]])
    assert state_of(cluster, job) == (S.CONFIGURING, ("h2", "h3"))


def test_a_job_whose_time_is_over_is_not_refused_with_its_like_that_waits() -> None:
    cluster = racked("aabb")
    for name in ("h1", "h3"):
        submit(cluster, hosts_only=(name,))
    waits = submit(cluster, ntasks=2, switches_wait_us=MINUTE_US)
    at_once = submit(cluster, ntasks=2, switches_wait_us=0)
    assert cluster.state.jobs[waits].demand == cluster.state.jobs[at_once].demand
    assert [state_of(cluster, job)[0] for job in (waits, at_once)] == [S.PENDING, S.CONFIGURING]


def test_the_time_of_a_held_job_begins_with_its_release() -> None:
    cluster = racked("ab")
    job = submit(cluster, ntasks=2, hold=True, switches_wait_us=MINUTE_US)
    cluster.now_us += 10 * MINUTE_US
    cluster.do(ev.ReleaseRequested(job, "ann"))
    assert state_of(cluster, job)[0] is S.PENDING
    assert cluster.cycle.next_due_us() == cluster.now_us + MINUTE_US


def test_the_time_of_a_released_job_is_the_same_after_a_restart() -> None:
    cluster = racked("ab")
    job = submit(cluster, ntasks=2, hold=True)
    array = cluster.submit("0-1", ntasks=2, switches=1, hold=True)
    cluster.now_us += 10 * MINUTE_US
    cluster.do(ev.ReleaseRequested(job, "ann"), ev.ReleaseRequested(array, "ann"))
    again = restore_state(dump_state(cluster.state, cluster.now_us), cluster.now_us)
    for number in (job, array):
        live, restored = (
            insists_until_us(state.jobs[number], state.snapshot(cluster.now_us))
            for state in (cluster.state, again)
        )
        assert live == restored == cluster.now_us + 5 * MINUTE_US


def test_the_elements_of_an_array_wait_as_their_array_does() -> None:
    cluster = racked("ab")
    array = cluster.submit("0-1", ntasks=2, switches=1, switches_wait_us=MINUTE_US)
    assert not cluster.running(array)
    cluster.now_us += MINUTE_US
    cluster.do()
    assert cluster.array(array).has("waiting") == 0b10, "the second has no room"


def test_without_racks_in_the_inventory_the_wish_says_nothing() -> None:
    cluster = racked("--")
    assert state_of(cluster, submit(cluster, ntasks=2))[0] is S.CONFIGURING


def test_what_fits_nowhere_says_what_is_lacking() -> None:
    cluster = racked("ab")
    submit(cluster, hosts_only=("h0",))
    job = submit(cluster, ntasks=2)
    reason = cluster.cycle.reason_of(cluster.state.jobs[job])
    assert reason is not None
    assert "--switches" not in reason.message


def test_a_job_that_only_one_host_can_take_is_placed_at_once() -> None:
    """Other hosts have room, and not its feature: they are no rack for it."""
    cluster = racked("".join(chr(0x100 + n) for n in range(SETS_ASKED + 1)))
    last = builders.host("last", cpus=1, variables=(("rm_leaf", "z"),), features=("big",))
    cluster.do(ev.HostAdded(last), ev.HostUp("last", "boot", "1"))
    assert state_of(cluster, submit(cluster, constraint="big")) == (S.CONFIGURING, ("last",))


def test_racks_without_the_feature_of_a_job_are_none_that_it_may_have() -> None:
    cluster = racked("".join(chr(0x100 + n) for n in range(SETS_ASKED + 1) for _ in range(2)))
    for name in ("x", "y"):
        host = builders.host(name, cpus=1, variables=(("rm_leaf", "z"),), features=("big",))
        cluster.do(ev.HostAdded(host), ev.HostUp(name, "boot", "1"))
    job = submit(cluster, ntasks=2, constraint="big")
    assert state_of(cluster, job) == (S.CONFIGURING, ("x", "y"))


def test_sets_of_racks_that_cannot_be_enough_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, added = 0, 0

    def counted(racks: list[Rack], size: int) -> Iterator[tuple[Rack, ...]]:
        nonlocal looked_at, added
        for chosen in combinations(racks, size):
            looked_at, added = looked_at + 1, added + size
            yield chosen

    monkeypatch.setattr("rm.core.scheduling.racks.combinations", counted)
    hosts = [builders.host(f"h{n}", cpus=1, variables=(("rm_leaf", f"r{n}"),)) for n in range(250)]
    snapshot = builders.snapshot(*hosts)
    racks = racks_of(snapshot)
    assert not list(sets_of(racks, builders.job(1, ntasks=200).demand, 199, snapshot))
    assert looked_at == 0
    found = sets_of(racks, builders.job(1, ntasks=190).demand, 199, snapshot)
    assert [len(one) for one in islice(found, 2)] == [190, 190]
    list(found)
    assert 0 < added <= RACKS_ADDED


def test_why_hosts_are_closed_is_looked_up_once_for_all_of_them() -> None:
    hashed = 0

    class Name(str):
        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return super().__hash__()

    hosts = [builders.host(f"h{n}", cpus=1) for n in range(100)]
    closed = tuple((Name(host.name), "is not below the leaf") for host in hosts[1:])
    shape = builders.job(1).demand.kept_from(closed).shape
    assert [host.name for host in hosts if admits(host, shape)] == ["h0"]
    assert hashed <= len(closed)


def test_more_leaves_than_a_cluster_has_are_refused() -> None:
    with pytest.raises(UsageError, match="switches is 5000, and may be at most 4096"):
        accept(builders.spec(switches=5_000))


def fits(racks: list[list[int]], most: int, ntasks: int, spread: int) -> int | None:
    """The fewest racks that hold the tasks: by trying every set of at most so many."""
    for size in range(1, most + 1):
        for chosen in combinations(racks, size):
            rooms = [room for rack in chosen for room in rack]
            if sum(rooms) >= ntasks and sum(map(bool, rooms)) >= spread:
                return size
    return None


@settings(max_examples=examples(300))
@given(
    racks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=5),
    most=st.integers(1, 5),
    ntasks=st.integers(1, 8),
    spread=st.integers(0, 4),
    policy=st.sampled_from(("first-fit", "rack", "consolidate", "zone")),
)
def test_a_job_goes_to_the_fewest_racks_that_hold_it(
    racks: list[list[int]], most: int, ntasks: int, spread: int, policy: str
) -> None:
    spread = min(spread, ntasks)
    leaf = {f"r{r}h{h}": f"r{r}" for r, rack in enumerate(racks) for h in range(len(rack))}
    hosts = [builders.host(name, cpus=4, variables=(("rm_leaf", on),)) for name, on in leaf.items()]
    rooms = {f"r{r}h{h}": room for r, rack in enumerate(racks) for h, room in enumerate(rack)}
    free = {host.name: replace(builders.whole(host), cpus=rooms[host.name]) for host in hosts}
    snapshot: Snapshot = builders.snapshot(*hosts, free=free)
    policies = Policies(load("queue", "fifo"), load("placement", policy), load("comm", "none"))
    job = builders.job(1, ntasks=ntasks, hosts_min=spread, switches=most)
    decision, reasons = place(job, snapshot, policies, Tuning(), 1)
    expected = fits(racks, most, ntasks, spread)
    if expected is None:
        assert decision is None
        anywhere = place(builders.job(1, ntasks=ntasks, hosts_min=spread), snapshot, policies, Tuning(), 1)[0]
        assert any("--switches" in one.message for one in reasons) == (anywhere is not None)
    else:
        assert decision is not None
        below = len({leaf[host] for host in decision.placement.hosts})
        assert below == expected or (len(racks) <= most and below <= most), "any hosts are below few enough"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("1", {"switches": 1}),
        ("2@30", {"switches": 2, "switches_wait_us": 30 * MINUTE_US}),
        ("1@0:10", {"switches": 1, "switches_wait_us": MINUTE_US // 6}),
        ("1@0", {"switches": 1, "switches_wait_us": 0}),
        ("1@UNLIMITED", {"switches": 1, "switches_wait_us": 3650 * 24 * 60 * MINUTE_US}),
    ],
)
def test_the_option_is_read_as_sbatch_reads_it(text: str, spec: dict[str, int]) -> None:
    assert switches(text) == spec


@pytest.mark.parametrize("text", ["", "0", "x", "1@", "1@x", "-1", "1@5@5"])
def test_a_malformed_wish_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--switches"):
        switches(text)
