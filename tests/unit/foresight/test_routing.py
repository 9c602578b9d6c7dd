"""Merged ranges, spines and subflows."""

import itertools
from fractions import Fraction

import pytest

from rm.policies.foresight.merging import merge_ranges, placed_patterns
from rm.policies.foresight.patterns import LeafFlow, shapes_of
from rm.policies.foresight.routing import route_flows
from rm.policies.foresight.timing import Slot
from tests.unit.foresight.demands import UPLINK, demand, links, parallel


def flows(ends: str, rate: int, units: int) -> list[LeafFlow]:
    """`ax by` is one flow from rack a to rack x and one from b to y."""
    return [
        LeafFlow(i, a, b, rate, -(-rate * units // UPLINK))
        for i, (a, b) in enumerate(map(tuple, ends.split()))
    ]


def loads(
    found: list[LeafFlow], spines: list[tuple[tuple[int, int], ...]]
) -> dict[tuple[str, int], Fraction]:
    """Rate on each (rack and direction, spine)."""
    result: dict[tuple[str, int], Fraction] = {}
    for flow, shares in zip(found, spines, strict=True):
        total = sum(parts for _, parts in shares)
        for (spine, parts), end in itertools.product(
            shares, (f"{flow.source} up", f"{flow.destination} down")
        ):
            key = end, spine
            result[key] = result.get(key, Fraction(0)) + Fraction(flow.rate_bps * parts, total)
    return result


@pytest.mark.parametrize(("units", "possible"), [(1, False), (2, False), (3, True)])
def test_three_flows_of_two_thirds_need_thirds(units: int, possible: bool) -> None:
    found = flows("ab ab ab", rate=2 * UPLINK // 3, units=units)
    spines, proper = route_flows(found, links(2, units), subflows=True)
    assert proper == possible
    if possible:
        assert max(loads(found, spines).values()) <= UPLINK
        assert sorted(len(s) for s in spines) == [1, 1, 2]  # one of them goes over both spines


def test_flows_are_split_only_where_whole_ones_do_not_fit() -> None:
    found = flows("ab ac bc", rate=UPLINK // 2, units=2)
    spines, proper = route_flows(found, links(2, 2), subflows=True)
    assert proper
    assert all(len(s) == 1 for s in spines)
    assert max(loads(found, spines).values()) <= UPLINK


def test_whole_flows_that_do_not_fit_are_spread_evenly() -> None:
    found = flows("ab ab ab ac", rate=UPLINK, units=1)
    spines, proper = route_flows(found, links(2), subflows=False)
    assert not proper
    assert max(loads(found, spines).values()) == 2 * UPLINK


def test_patterns_that_overlap_in_time_and_share_a_rack_are_merged() -> None:
    """1 and 2 overlap, 2 and 3 overlap: one chain. 4 sends at the same time elsewhere, 5 back, 6 later."""
    jobs = [
        demand(1, 10, [(0, 3)], parallel(1)),
        demand(2, 10, [(2, 6)], parallel(1, first=1)),
        demand(3, 10, [(5, 8)], parallel(1, first=2)),
        demand(4, 10, [(0, 8)], parallel(1, "c", "d")),
        demand(5, 10, [(0, 8)], parallel(1, "b", "a", first=3)),
        demand(6, 10, [(8, 9)], parallel(1, first=4)),
    ]
    where = links(4)
    slots = [Slot(j.job, 0, 0, 0, shapes_of(j, where)[0]) for j in jobs]
    ranges = merge_ranges(placed_patterns(slots))
    assert [{p.job for p in r.patterns} for r in ranges] == [{1, 2, 3}, {4}, {5}, {6}]
    assert (ranges[0].start_us, ranges[0].end_us) == (0, 8)


def test_a_flow_that_sends_again_in_a_chain_is_one_edge() -> None:
    """Both bursts of job 1 overlap job 2: its flow cannot meet itself, so two spines are enough."""
    where = links(2)
    jobs = [demand(1, 10, [(0, 3), (5, 8)], parallel(1)), demand(2, 10, [(1, 7)], parallel(1, first=1))]
    slots = [Slot(j.job, 0, 0, 0, shapes_of(j, where)[0]) for j in jobs]
    (merged,) = merge_ranges(placed_patterns(slots))
    assert sorted(merged.flows) == [(1, 0), (2, 0)]
    assert route_flows(list(merged.flows.values()), where, subflows=False)[1]


def test_a_pattern_is_traffic_without_a_pause_at_the_peak_of_each_flow() -> None:
    job = demand(1, 20, [(0, 4), (4, 8), (10, 12)], [("a0", "b0"), ("a1", "a2")])
    where = links(1)
    (shape,) = shapes_of(job, where)
    assert [(p.start_us, p.end_us, p.first_op, p.last_op) for p in shape.patterns] == [
        (0, 8, 0, 1),
        (10, 12, 2, 2),
    ]
    assert [[f.flow for f in p.flows] for p in shape.patterns] == [[0], [0]]  # the other stays in its rack
