"""Which links a flow takes."""

from collections import Counter

import pytest

from rm.core.model.network.fabric import Fabric
from rm.errors import UsageError
from rm.sim.network.fabric import Topology, logical_spine
from rm.sim.network.port import Flow, Transfer

HOSTS = [f"h{i}" for i in range(16)]
FABRIC = Fabric({h: f"leaf{i // 8}" for i, h in enumerate(HOSTS)}, 4, 100)
LINKS = dict.fromkeys(HOSTS, 100.0)


def paths(topology: Topology, *flows: Flow, job: int = 1, number: int = 1) -> list[list[str]]:
    one = Transfer(number, job, (), flows)
    return [[topology.names[link] for link in path] for _, _, path in topology.subflows(one)]


def test_a_switch_without_limits_has_host_links_only() -> None:
    topology = Topology({"a": 10.0, "b": 20.0})
    assert dict(zip(topology.names, topology.capacity_bps, strict=True)) == {
        "a:out": 10.0, "b:out": 20.0, "a:in": 10.0, "b:in": 20.0,
    }  # fmt: skip
    assert paths(topology, Flow("a", "b", 1), Flow("b", "a", 1), Flow("a", "a", 1)) == [
        ["a:out", "b:in"],
        ["b:out", "a:in"],
        [],
    ]


def test_only_traffic_between_leaves_takes_a_spine() -> None:
    topology = Topology({**LINKS, "outside": 100.0}, FABRIC)
    assert len(topology.names) == 2 * 17 + 2 * 2 * 4
    assert paths(topology, Flow("h0", "h7", 1), Flow("h0", "outside", 1)) == [
        ["h0:out", "h7:in"],
        ["h0:out", "outside:in"],
    ]
    ((out, up, down, into),) = paths(topology, Flow("h0", "h8", 1))
    assert (out, into) == ("h0:out", "h8:in")
    assert (up, down) in [(f"leaf0->spine{s}", f"spine{s}->leaf1") for s in range(4)]


def test_a_pinned_flow_is_cut_into_its_subflows() -> None:
    topology = Topology(LINKS, FABRIC)
    flow = Flow("h0", "h8", 1, route=((3, 0.25), (1, 0.75)))
    found = [
        (share, topology.names[path[1]]) for _, share, path in topology.subflows(Transfer(1, 1, (), (flow,)))
    ]
    assert found == [(0.25, "leaf0->spine3"), (0.75, "leaf0->spine1")]


def test_ecmp_is_drawn_by_the_seed_for_each_connection_or_for_each_transfer() -> None:
    flow = Flow("h0", "h8", 1)
    by_connection, by_transfer = Topology(LINKS, FABRIC), Topology(LINKS, FABRIC, ecmp="transfer")
    assert len({str(paths(by_connection, flow, number=n)) for n in range(50)}) == 1
    assert len({str(paths(by_transfer, flow, number=n)) for n in range(50)}) == 4
    assert len({str(paths(Topology(LINKS, FABRIC, seed=s), flow)) for s in range(50)}) == 4
    assert len({str(paths(by_connection, flow, job=j)) for j in range(50)}) == 4
    parallel = paths(by_connection, *[flow] * 50)
    assert {path[1] for path in parallel} == {f"leaf0->spine{s}" for s in range(4)}
    assert parallel == paths(Topology(LINKS, FABRIC), *[flow] * 50)


def test_ecmp_spreads_connections_evenly() -> None:
    topology = Topology(LINKS, FABRIC)
    flows = [Flow(a, b, 1) for a in HOSTS[:8] for b in HOSTS[8:]]
    drawn = Counter(path[1] for job in range(100) for path in paths(topology, *flows, job=job))
    assert sum(drawn.values()) == 6400
    assert all(1450 < count < 1750 for count in drawn.values())  # 1600 expected, four deviations of 35


def test_the_logical_spine_has_the_capacity_of_all() -> None:
    topology = Topology(LINKS, logical_spine(FABRIC))
    assert paths(topology, Flow("h0", "h8", 1)) == [["h0:out", "leaf0->spine0", "spine0->leaf1", "h8:in"]]
    assert topology.capacity_bps[topology.names.index("leaf0->spine0")] == 400


def test_a_fabric_needs_a_spine() -> None:
    with pytest.raises(UsageError, match="without spines"):
        Topology(LINKS, Fabric(FABRIC.leaf_of, 0, 100))
