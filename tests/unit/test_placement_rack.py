"""rack: the fewest leaves, best fit, and rings that leave each leaf once."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.job import Job, Placement
from rm.core.model.network.fabric import Fabric
from rm.core.model.snapshot import Snapshot
from rm.core.registry import load
from rm.errors import ConfigError
from rm.policies.placement.rack import LatestLeaves, leaf_numbers
from tests.builders import asked, host, job, snapshot
from tests.examples import examples

SETTINGS = settings(max_examples=examples(100))


def cluster(rooms: dict[str, int], leaf_of: dict[str, str]) -> Snapshot:
    """Hosts with so many processors free."""
    snap = snapshot(*(host(name, cpus=8) for name in rooms))
    free = {name: replace(snap.free[name], cpus=room) for name, room in rooms.items()}
    return replace(snap, free=free, fabric=Fabric(leaf_of, 1, 10**9) if leaf_of else None)


def chosen(one: Job, snap: Snapshot, **options: object) -> Placement:
    found: Placement = next(
        load("placement", "rack", options).candidates(asked(one), snap).candidates
    ).placement
    return found


def leaves(rooms: str, size: int) -> dict[str, str]:
    return {name: f"L{i // size + 1}" for i, name in enumerate(rooms)}


def test_the_tightest_leaf_that_holds_the_gang() -> None:
    rooms = dict.fromkeys("abcdefgh", 1)
    above = {"a": "L1", "b": "L1", "c": "L1", "d": "L1", "e": "L2", "f": "L2", "g": "L3", "h": "L3"}
    assert chosen(job(ntasks=2), cluster(rooms, above)).hosts == ("e", "f")
    assert chosen(job(ntasks=3), cluster(rooms, above)).hosts == ("a", "b", "c")


def test_what_does_not_fill_a_leaf_goes_to_the_tightest() -> None:
    rooms = {**dict.fromkeys("abcd", 1), "e": 0, "f": 1, "g": 1, "h": 1}
    above = leaves("abcdefgh", 4) | {"g": "L3", "h": "L3"}
    assert chosen(job(ntasks=5), cluster(rooms, above)).hosts == ("a", "b", "c", "d", "f")
    assert chosen(job(ntasks=6), cluster(rooms, above)).hosts == ("a", "b", "c", "d", "g", "h")


def test_without_a_fabric_every_host_is_its_own_leaf() -> None:
    rooms = {"a": 2, "b": 4, "c": 3}
    assert chosen(job(ntasks=3), cluster(rooms, {})).hosts == ("c",)
    assert chosen(job(ntasks=6), cluster(rooms, {})).hosts == ("b", "a")


def test_below_one_leaf_the_fewest_hosts_and_the_tightest_last() -> None:
    """What a job has left of a host is taken before a whole one."""
    rooms = {"a": 1, "b": 2, "c": 2}
    assert chosen(job(ntasks=3), cluster(rooms, dict.fromkeys("abc", "L1"))).hosts == ("b", "a")


def test_indifferent_placement_draws_hosts_where_no_leaf_holds_the_gang() -> None:
    rooms = dict.fromkeys("abcdefgh", 1)
    snap = cluster(rooms, leaves("abcdefgh", 2))
    anywhere = {chosen(job(ntasks=3), snap, across="any", seed=seed).hosts for seed in range(20)}
    assert len(anywhere) > 10
    assert chosen(job(ntasks=2), snap, across="any", seed=1).hosts == ("a", "b")
    by_host = {chosen(job(ntasks=2), snap, across="any", near="host", seed=s).hosts for s in range(20)}
    assert len(by_host) > 10
    for hosts in (*anywhere, *by_host):
        assert list(hosts) == sorted(hosts), "ranks are not in the order of the leaves"


def test_each_candidate_is_another_lot_and_each_attempt_too() -> None:
    snap = cluster(dict.fromkeys("abcdefgh", 1), leaves("abcdefgh", 2))
    policy = load("placement", "rack", {"across": "any"})
    found = [c.placement.hosts for c in policy.candidates(asked(job(ntasks=3)), snap).candidates]
    assert len(set(found)) == len(found) > 3
    again = next(policy.candidates(asked(replace(job(ntasks=3), attempt=1)), snap).candidates)
    assert again.placement.hosts != found[0]


@pytest.mark.parametrize("options", [{"near": "zone"}, {"across": "few"}, {"seed": -1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        load("placement", "rack", options)


@SETTINGS
@given(
    rooms=st.lists(st.integers(0, 3), min_size=2, max_size=8),
    size=st.integers(1, 3),
    tasks=st.integers(1, 8),
)
def test_fewest_leaves_and_a_ring_leaves_each_once(rooms: list[int], size: int, tasks: int) -> None:
    names = "abcdefgh"[: len(rooms)]
    above = leaves(names, size)
    snap = cluster(dict(zip(names, rooms, strict=True)), above)
    room: dict[str, int] = {}
    for name, free in zip(names, rooms, strict=True):
        room[above[name]] = room.get(above[name], 0) + free
    fits = [
        n for n in range(1, len(room) + 1) if any(sum(c) >= tasks for c in combinations(room.values(), n))
    ]
    if not fits:
        return
    placement = chosen(job(ntasks=tasks), snap)
    assert snap.fabric is not None
    assert len(snap.fabric.leaves(placement.hosts)) == fits[0]
    assert set(snap.fabric.crossings(placement.hosts).values()) <= {1}
    if fits[0] == 1:
        mine = above[placement.hosts[0]]
        assert room[mine] == min(r for r in room.values() if r >= tasks), "not the tightest leaf"


def test_leaves_are_those_of_the_hosts_and_the_fabric_asked_for():
    hosts, fabric = [host("a"), host("b")], Fabric({"a": "l1", "b": "l2"}, 1, 1)
    latest = LatestLeaves()
    for now, above in [
        (hosts, fabric),
        (hosts, Fabric({"a": "l1", "b": "l1"}, 1, 1)),
        (hosts, fabric),
        ([host("b"), host("c"), host("a")], fabric),
    ]:
        assert latest.of(now, above).tolist() == leaf_numbers(now, above).tolist()
