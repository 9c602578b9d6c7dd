"""Uplinks of leaves: what crosses them, how jobs that share them are kept apart, and where they show."""

from dataclasses import replace

import pytest

from rm.config import load_config
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.fabric import Fabric, fabric_of
from rm.core.model.snapshot import PlacedJob, Snapshot
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.services.network_service import known_links
from rm.errors import ConfigError
from rm.policies.comm.cassini import Cassini
from rm.policies.comm.metronome import Metronome
from rm.policies.interleave.loads import link_loads
from rm.policies.interleave.profile import Phases
from tests.builders import MBPS, host, placed, profile, snapshot, spec

LEAVES = {"a1": "A", "a2": "A", "b1": "B", "b2": "B", "c1": "C"}
HALF = profile(200, (0, 100, 100))


def cluster(uplink_mbps: int = 100, spines: int = 1) -> Snapshot:
    """Three leaves; host links carry 100 Mbit/s."""
    hosts = snapshot(*(host(n, nic_mbps=100) for n in (*LEAVES, "free")))
    return replace(hosts, fabric=Fabric(LEAVES, spines, uplink_mbps * MBPS))


def loads(job: PlacedJob, snap: Snapshot, model: str = "ring") -> dict[str, tuple[int, Phases]]:
    _, links = link_loads([job], snap, model)
    return {name: (link.capacity, link.phases[job.job]) for name, link in links.items()}


def test_a_job_below_one_leaf_loads_no_uplink() -> None:
    assert set(loads(placed(1, "a1", "a2", traffic=HALF), cluster())) == {"a1", "a2"}


def test_a_ring_sends_its_rate_once_for_each_time_that_it_leaves_a_leaf() -> None:
    job = placed(1, "a1", "b1", "a2", "b2", traffic=profile(200, (0, 10, 50)))
    found = loads(job, cluster(uplink_mbps=100, spines=2))
    assert found["leaf:A"] == found["leaf:B"] == (200 * MBPS, ((0, 10_000, 100 * MBPS),))
    in_order = loads(placed(1, "a1", "a2", "b1", "b2", traffic=HALF), cluster())
    assert in_order["leaf:A"] == (100 * MBPS, ((0, 100_000, 100 * MBPS),))


def test_an_uplink_narrower_than_its_ring_stretches_the_phase_on_every_link() -> None:
    found = loads(placed(1, "a1", "b1", traffic=profile(200, (0, 50, 100))), cluster(uplink_mbps=50))
    assert {phases for _, phases in found.values()} == {((0, 100_000, 50 * MBPS),)}
    demands, _ = link_loads([placed(1, "a1", "b1", traffic=profile(200, (0, 50, 100)))], cluster(50))
    assert demands[1].period == 250_000


def test_in_the_other_models_a_leaf_is_like_one_host_with_all_of_its_tasks() -> None:
    job = placed(1, "a1", "a2", "b1", traffic=profile(200, (0, 10, 10)))
    for model, up in (("sum", 20), ("alltoall", 10), ("literal", 20)):
        assert loads(job, cluster(), model)["leaf:A"][1] == ((0, 10_000, up * MBPS),)


def test_hosts_on_no_known_leaf_count_on_their_own_link_alone() -> None:
    assert set(loads(placed(1, "a1", "free", traffic=HALF), cluster())) == {"a1", "free", "leaf:A"}


LOW = placed(2, "a2", "b2", traffic=profile(200, (0, 80, 100)))
PAIR = [placed(1, "a1", "b1", traffic=profile(200, (0, 80, 100)), priority=100), LOW]


@pytest.mark.parametrize("comm", [Metronome(), Cassini(load("comm", "cassini", {"loops": "joint"}).options)])
def test_jobs_that_share_only_uplinks_are_kept_apart(comm: Metronome | Cassini) -> None:
    answer = comm.align(PAIR, cluster())
    assert [link.link for link in answer.links] == ["leaf:A", "leaf:B"]
    assert answer.score == 100
    assert 80_000 <= answer.schedules[1].shift_us <= 120_000
    assert answer.shaping == (), "classes are kept on hosts"


def test_three_jobs_on_a_light_uplink_wait_for_their_slots() -> None:
    """Classes, which would do on a host's link, cannot keep them apart there."""
    light = profile(200, (0, 30, 100))
    jobs = [
        placed(i, a, b, traffic=light)
        for i, (a, b) in enumerate((("a1", "b1"), ("a2", "b2"), ("a3", "b3")), 1)
    ]
    leaves = {h: h[0].upper() for job in jobs for h in job.placement.hosts}
    hosts = snapshot(*(host(n, nic_mbps=100) for n in leaves))
    answer = Metronome().align(jobs, replace(hosts, fabric=Fabric(leaves, 1, 100 * MBPS)))
    assert [link.link for link in answer.links] == ["leaf:A", "leaf:B"]
    assert [s.gate for s in answer.schedules] == [False, True, True]


def test_wide_uplinks_need_no_rotation() -> None:
    assert Metronome().align(PAIR, cluster(spines=2)).links == ()
    assert Metronome().align(PAIR, replace(cluster(), fabric=None)).links == ()


def test_uplinks_and_host_links_are_aligned_together() -> None:
    """Job 3 meets job 1 on host a1, job 2 on the uplinks: one time-shift per job suits all."""
    third = placed(3, "a1", "c1", traffic=profile(200, (0, 30, 100)))
    answer = Metronome().align([*PAIR, third], cluster())
    assert answer.score == 100
    at = {s.job: s.shift_us for s in answer.schedules}
    length = {1: 80_000, 2: 80_000, 3: 30_000}
    met = {link.link: link.jobs for link in answer.links}
    assert met == {"a1": (1, 3), "leaf:A": (1, 2, 3), "leaf:B": (1, 2)}
    for jobs in met.values():
        for x in jobs:
            for y in jobs:
                assert x == y or (at[y] - at[x]) % 200_000 >= length[x]
    assert {(r.host, r.job) for r in answer.shaping} == {("a1", 1), ("a1", 3)}


# -- in the product -------------------------------------------------------------------------------


def test_the_leaf_of_a_host_is_an_inventory_variable() -> None:
    hosts = [
        host("a", variables=(("rm_leaf", "rack-1"),)),
        host("b", variables=(("rm_leaf", '"2"'),)),  # as the inventory keeps the text "2"
        host("c", variables=(("rm_leaf", "3"),)),
        host("d"),
    ]
    made = fabric_of(hosts, 2, 10)
    assert made is not None
    assert made.leaf_of == {"a": "rack-1", "b": "2", "c": "3"}
    assert made.capacity_bps == 20
    assert fabric_of(hosts, 0, 0) is None


def test_hosts_that_come_later_take_their_place_in_the_fabric() -> None:
    state = ClusterState(fabric=Fabric({}, 1, 100 * MBPS))
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "metronome"))
    cycle = Cycle(state, policies)
    racks = {"h1": "A", "h2": "B", "h3": "A", "h4": "B"}
    for name, leaf in racks.items():
        cycle.step([ev.HostAdded(host(name, nic_mbps=100, cpus=1, variables=(("rm_leaf", leaf),)))], 1)
    cycle.step([ev.HostUp(name, "boot", "1") for name in racks], 2)
    loud: TrafficProfile = profile(200, (0, 80, 100))
    cycle.step([ev.JobSubmitted(i, spec(f"j{i}", ntasks=2, traffic=loud)) for i in (1, 2)], 3)
    assert [state.jobs[i].placement.hosts for i in (1, 2)] == [("h1", "h2"), ("h3", "h4")]  # type: ignore[union-attr]
    assert state.fabric is not None
    assert state.fabric.leaf_of == racks
    assert [link.link for link in state.alignment.links] == ["leaf:A", "leaf:B"]
    assert known_links(state)["leaf:A"] == (100 * MBPS, {1, 2})
    assert list(known_links(state)) == ["h1", "h2", "h3", "h4", "leaf:A", "leaf:B"]
    cycle.step([ev.HostAdded(host("h3", nic_mbps=100, cpus=1, variables=(("rm_leaf", "C"),)))], 4)
    assert state.fabric.leaf_of["h3"] == "C"


def test_the_configuration_needs_the_width_of_uplinks() -> None:
    good = load_config(flags={"fabric.spines": 4, "fabric.uplink_mbps": 100_000}, env={})
    assert (good.fabric.spines, good.fabric.uplink_mbps) == (4, 100_000)
    with pytest.raises(ConfigError, match="uplink_mbps is 0"):
        load_config(flags={"fabric.spines": 4}, env={})
