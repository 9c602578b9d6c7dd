"""crux: GPU intensity, the order of classes and paths by it, and few levels for many jobs."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.model.network.alignment import NOTHING_TO_ALIGN
from rm.core.model.network.fabric import Fabric
from rm.errors import ConfigError
from rm.policies.comm.crux import Crux, CruxOptions, intensity, levels
from rm.policies.interleave.loads import link_loads
from tests.builders import host, placed, profile, snapshot

CLUSTER = snapshot(*(host(name, nic_mbps=100) for name in "abcd"))


def test_intensity_is_computation_over_transmission_on_the_slowest_link() -> None:
    """Eq. 2: W = (200 - 50) ms on 2 tasks, t = 50 ms at 100 of 100 Mbit/s; on a link half as fast twice t."""
    job = placed(1, "a", "b", traffic=profile(200, (0, 50, 100)))
    assert intensity(job, link_loads([job], CLUSTER)[1]) == pytest.approx(2 * 150 / 50)
    wider = snapshot(host("a", nic_mbps=100), host("b", nic_mbps=200))
    assert intensity(job, link_loads([job], wider)[1]) == pytest.approx(2 * 150 / 50)


def test_the_job_that_computes_more_for_what_it_sends_has_the_higher_class_on_all_its_hosts() -> None:
    chatty = placed(1, "a", "b", traffic=profile(200, (0, 100, 100)))
    busy = placed(2, "b", "c", traffic=profile(200, (0, 20, 100)))
    alone = placed(3, "d", "d", traffic=profile(200, (0, 100, 100)))
    rules = Crux().align([chatty, busy, alone], CLUSTER).shaping
    assert [(rule.host, rule.job, rule.priority) for rule in rules] == [
        ("a", 1, 1), ("b", 1, 1), ("b", 2, 0), ("c", 2, 0)
    ]  # fmt: skip
    first = placed(1, "a", "b", priority=100, traffic=profile(200, (0, 100, 100)))
    assert {r.job: r.priority for r in Crux().align([first, busy], CLUSTER).shaping} == {1: 0, 2: 1}


def test_jobs_that_meet_nobody_have_no_class() -> None:
    apart = [placed(n, *on, traffic=profile(200, (0, 50, 100))) for n, on in ((1, "ab"), (2, "cd"))]
    assert Crux().align(apart, CLUSTER) == NOTHING_TO_ALIGN


def test_the_intense_job_chooses_its_path_first() -> None:
    """Two spines, and a third job that has to share one of them: with the one that loses least."""
    above = {"a": "l1", "b": "l2", "c": "l1", "d": "l2", "e": "l1", "f": "l2"}
    fabric = Fabric(above, 2, 100_000_000, dscp=(8, 16))
    snap = replace(snapshot(*(host(name, nic_mbps=100) for name in above)), fabric=fabric)
    sends = {1: 90, 2: 50, 3: 10}
    jobs = [
        placed(n, *on, traffic=profile(200, (0, sends[n], 100)))
        for n, on in ((1, "ab"), (2, "cd"), (3, "ef"))
    ]
    spine = {(one.job, one.host): one.spine for one in Crux().align(jobs, snap).paths}
    assert spine[3, "e"] == 0
    assert spine[2, "c"] == 1
    assert Crux(CruxOptions(paths=False)).align(jobs, snap).paths == ()


@pytest.mark.parametrize("wrong", [0, 9])
def test_levels_that_no_host_has_are_refused(wrong) -> None:
    with pytest.raises(ConfigError, match="levels"):
        CruxOptions(levels=wrong)


def test_two_levels_for_four_jobs_are_cut_where_most_intensity_meets() -> None:
    """Sec. 4.3: jobs 1 and 2 share a link, 3 and 4 another; a cut elsewhere would lose 4 or 3."""
    order, worth = (1, 3, 2, 4), {1: 4.0, 3: 3.0, 2: 2.0, 4: 1.0}
    meets = {1: {1, 2}, 2: {1, 2}, 3: {3, 4}, 4: {3, 4}}
    assert levels(order, worth, meets, 2) == {1: 0, 3: 0, 2: 1, 4: 1}


@given(st.data())
def test_levels_keep_the_order_and_lose_least(data) -> None:
    count, most = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    order = range(count)
    worth = {n: float(data.draw(st.integers(0, 9))) for n in order}
    pairs = {pair for pair in itertools.combinations(order, 2) if data.draw(st.booleans())}
    meets = {n: {m for pair in pairs if n in pair for m in pair} for n in order}

    def lost(level: dict[int, int]) -> float:
        return sum(worth[a] for a, b in pairs if level[a] == level[b])

    found = levels(order, worth, meets, most)
    assert [found[n] for n in order] == sorted(found[n] for n in order)
    assert set(found.values()) <= set(range(most))
    every = itertools.combinations_with_replacement(range(most), count)
    assert lost(found) == min(lost(dict(zip(order, one, strict=True))) for one in every)
