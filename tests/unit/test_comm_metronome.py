"""Metronome's alignment of placed jobs (milliseconds and Mbit/s)."""

from collections.abc import Sequence

import pytest

from rm.bootstrap.choices import policies_of
from rm.config import load_config
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.snapshot import PlacedJob
from rm.policies.comm.metronome import Metronome, MetronomeOptions
from tests.builders import MBPS, host, placed, profile, snapshot

CLUSTER = snapshot(*(host(f"h{i}", nic_mbps=100) for i in range(5)))


def onoff(period: float, comm: float, mbps: float = 100) -> TrafficProfile:
    return profile(period, (0, comm, mbps))


def pair(high: TrafficProfile, low: TrafficProfile) -> list[PlacedJob]:
    return [
        placed(1, "h0", "h1", traffic=high, priority=100),
        placed(2, "h0", "h1", traffic=low),
    ]


def align(jobs: Sequence[PlacedJob], offline: bool = False, **options: object) -> Alignment:
    return Metronome(MetronomeOptions(**options)).align(jobs, CLUSTER, offline)  # type: ignore[arg-type]


def test_jobs_on_hosts_of_their_own_need_no_alignment() -> None:
    jobs = [placed(1, "h0", "h1", traffic=onoff(196, 75)), placed(2, "h2", "h3", traffic=onoff(191, 75))]
    assert align(jobs) == NOTHING_TO_ALIGN
    assert align([placed(1, "h0", "h0", traffic=onoff(196, 75)), jobs[0]]) == NOTHING_TO_ALIGN


def test_unequal_periods_are_made_equal_by_idle_time_of_the_low_job() -> None:
    answer = align(pair(onoff(196, 75), onoff(191, 75)))
    assert answer.score == 100
    assert answer.unmatched == ()
    high, low = answer.schedules
    assert (high.reference, high.inject_us, high.shift_us, high.gate) == (True, 0, 0, False)
    assert (low.period_us, low.base_period_us, low.inject_us) == (196_000, 191_000, 5_000)
    assert low.shift_us == 98_000
    assert low.gate
    assert low.cushion_us == 23_000  # 98 ms from start to start, 75 of them busy
    assert {low.component, high.component} == {1}
    assert [link.link for link in answer.links] == ["h0", "h1"]
    assert [link.gap_us for link in answer.links] == [23_000, 23_000]


def test_the_paper_mode_averages_periods_and_gates_nothing() -> None:
    answer = align(pair(onoff(196, 75), onoff(191, 75)), mode="paper")
    assert answer.score == 100
    assert {s.period_us for s in answer.schedules} == {193_500}
    assert not any(s.inject_us or s.gate for s in answer.schedules)


def test_a_pair_that_cannot_be_kept_apart_scores_below_100_and_is_not_gated() -> None:
    answer = align(pair(onoff(199, 119), onoff(199, 119)))
    assert answer.score == pytest.approx(100 * (1 - (2 * 119 / 199 - 1)), abs=3)
    assert not any(s.gate or s.inject_us for s in answer.schedules)


def test_idle_time_is_not_injected_where_it_costs_more_than_contention() -> None:
    jobs = pair(onoff(193, 60), onoff(352, 95))  # 34 of 352 ms idle against 8.4 % contention
    answer = align(jobs)
    assert answer.unmatched == (1, 2)
    assert answer.schedules == ()
    assert answer.score == pytest.approx(100 * (1 - 60 / 193 * 95 / 352))
    literal = align(jobs, mode="paper")
    assert literal.score == 100
    assert [s.inject_us for s in literal.schedules] == [0, 34_000]


def test_periods_that_do_not_match_leave_both_jobs_uncontrolled() -> None:
    answer = align(pair(onoff(1000, 300), onoff(17, 5)))
    assert answer.unmatched == (1, 2)
    assert answer.schedules == ()
    assert 0 < answer.score < 100
    assert {rule.job for rule in answer.shaping} == {1, 2}


def test_a_job_that_cannot_keep_the_pace_of_the_reference_has_no_rotation() -> None:
    """It would drift through the other's phases, whatever was promised; a measured period has some noise."""
    answer = align(pair(onoff(196, 86), onoff(200, 86)))
    assert (answer.unmatched, answer.schedules) == ((1, 2), ())
    assert answer.score < 90
    within = align(pair(onoff(199.5, 75), onoff(200, 75)))
    assert (within.unmatched, within.score) == ((), 100)


def test_high_jobs_beside_low_ones_are_neither_lengthened_nor_gated() -> None:
    jobs = [
        placed(1, "h0", "h1", traffic=onoff(200, 40), priority=100),
        placed(2, "h0", "h1", traffic=onoff(198, 40), priority=100),
        placed(3, "h0", "h1", traffic=onoff(197, 40)),
    ]
    answer = align(jobs)
    assert [s.inject_us for s in answer.schedules] == [0, 0, 3_000]
    assert [s.gate for s in align(jobs, combine=True).schedules] == [False, False, True]
    alone = align(jobs[:2])
    assert [s.inject_us for s in alone.schedules] == [0, 2_000]


def test_a_loop_of_three_links_is_solved_jointly() -> None:
    jobs = [
        placed(1, "h0", "h1", traffic=onoff(195, 47), priority=100),
        placed(2, "h1", "h2", traffic=onoff(195, 47)),
        placed(3, "h2", "h0", traffic=onoff(193, 47)),
        placed(4, "h2", "h3", traffic=onoff(390, 47)),
    ]
    quick, wide = align(jobs), align(jobs, offline=True)
    assert quick.score == wide.score == 100
    assert quick.recompute
    assert not wide.recompute
    assert min(s.cushion_us for s in wide.schedules) > min(s.cushion_us for s in quick.schedules)
    for answer in (quick, wide):
        at = {s.job: s for s in answer.schedules}
        for link in answer.links:  # in real time: no two phases on one link overlap
            for a in link.jobs:
                for b in (j for j in link.jobs if j > a):
                    common = min(at[a].period_us, at[b].period_us)
                    apart = (at[b].shift_us - at[a].shift_us) % common
                    assert 47_000 <= apart <= common - 47_000, (link.link, a, b)


def test_a_chain_keeps_one_iteration_time_per_job() -> None:
    jobs = [
        placed(1, "h0", "h1", traffic=onoff(200, 60), priority=100),
        placed(2, "h1", "h2", traffic=onoff(196, 60)),
        placed(3, "h2", "h3", traffic=onoff(190, 60)),
    ]
    answer = align(jobs)
    assert answer.score == 100
    assert [s.period_us for s in answer.schedules] == [200_000] * 3
    assert [s.inject_us for s in answer.schedules] == [0, 4_000, 10_000]
    assert [s.reference for s in answer.schedules] == [True, False, False]


def test_the_order_of_the_jobs_does_not_matter() -> None:
    jobs = [placed(i, "h0", "h1", traffic=onoff(200, 30), priority=i % 2 * 100) for i in range(1, 5)]
    assert align(jobs) == align(jobs[::-1])


def test_low_communication_jobs_are_left_alone() -> None:
    jobs = [*pair(onoff(196, 75), onoff(191, 75)), placed(3, "h0", "h1", low_comm=True)]
    assert align(jobs) == align(jobs[:2])


def test_a_demand_wider_than_the_link_is_limited_by_it() -> None:
    answer = align(pair(onoff(196, 75), profile(158.5, (0, 37.5, 200))))  # 37.5 ms at 200 = 75 at 100
    assert answer.score == 100
    assert answer.schedules[1].base_period_us == 196_000


def test_shaping_puts_high_jobs_first_and_low_ones_by_rank() -> None:
    jobs = [placed(i, "h0", "h1", traffic=onoff(200, 30), priority=100 if i < 3 else 0) for i in range(1, 5)]
    rules = [r for r in align(jobs, bursts=False).shaping if r.host == "h0"]
    assert [(r.job, r.priority) for r in rules] == [(1, 0), (2, 0), (3, 1), (4, 2)]
    assert all(r.ceil_bps == 100 * MBPS for r in rules)
    assert sum(r.rate_bps for r in rules) <= 100 * MBPS


def test_parts_can_be_switched_off() -> None:
    jobs = pair(onoff(196, 75), onoff(191, 75))
    assert align(jobs, shaping=False).shaping == ()
    shaped = align(jobs, rotation=False)
    assert shaped.schedules == ()
    assert shaped.unmatched == (1, 2)
    assert len(shaped.shaping) == 4
    assert not any(s.gate for s in align(jobs, gating=False).schedules)


def kept(
    jobs: Sequence[PlacedJob], host: str = "h0", **options: object
) -> tuple[list[int], dict[int, int], bool]:
    """The jobs that wait for slots, the classes on a host, and whether the jobs have time-shifts; where links
    do not serve bursts as they come."""
    answer = align(jobs, **{"bursts": False, **options})
    gated = [s.job for s in answer.schedules if s.gate]
    return gated, {r.job: r.priority for r in answer.shaping if r.host == host}, bool(answer.schedules)


def many(comm: float, *periods: float, high: int = 0) -> list[PlacedJob]:
    """Jobs on the same links; the first `high` of them have high priority."""
    return [
        placed(i, "h0", "h1", traffic=onoff(t, comm), priority=100 if i <= high else 0)
        for i, t in enumerate(periods, 1)
    ]


def served_in_order(jobs: list[PlacedJob]) -> dict[int, int]:
    """The priorities on a link that serves bursts as they come, {} where it does not."""
    answer = align(jobs)
    rules = [rule for rule in answer.shaping if rule.host == "h0"]
    assert len({rule.bursts is None for rule in rules}) <= 1
    if any(rule.bursts for rule in rules):
        assert not any(schedule.gate for schedule in answer.schedules)
        return {rule.job: rule.priority for rule in rules}
    return {}


def test_links_serve_bursts_as_they_come_where_the_paces_are_alike() -> None:
    assert served_in_order(many(80, 200, 200)) == {1: 1, 2: 1}
    assert served_in_order(many(60, 200, 200, 200)) == {1: 1, 2: 1, 3: 1}
    assert served_in_order(many(60, 190, 195, 200, high=1)) == {1: 0, 2: 1, 3: 1}
    assert served_in_order(many(20, 200, 100, 200, 100)) == {1: 1, 2: 1, 3: 1, 4: 1}, "in two iterations"
    assert served_in_order(many(73, 200, 200, 200)) == {1: 1, 2: 1, 3: 1}, "overloaded: each has its turn"


def test_links_do_not_serve_bursts_as_they_come_where_the_fast_would_have_the_pace_of_the_slow() -> None:
    assert served_in_order(many(30, 200, 167, 144)) == {}
    assert served_in_order(many(75, 200, 100)) == {}, "the second fits once into the gaps of the first"
    assert served_in_order(many(30, 200, 167, 144, high=1)) == {}
    assert served_in_order(many(80, 200, 200, high=1)) == {}, "a high and a low job: by priority"


def test_two_jobs_that_a_rotation_keeps_apart_have_classes_and_gates() -> None:
    assert kept(many(80, 200, 200)) == ([2], {1: 1, 2: 2}, True)
    assert kept(many(80, 200, 200, high=1)) == ([2], {1: 0, 2: 1}, True)


def test_more_jobs_of_one_priority_have_gates_where_a_rotation_keeps_them_apart() -> None:
    assert kept(many(60, 200, 200, 200)) == ([2, 3], {}, True)
    assert kept(many(60, 200, 200, 200, high=3)) == ([2, 3], {}, True)
    assert kept(many(60, 200, 200, 200), combine=True) == ([2, 3], {1: 1, 2: 2, 3: 3}, True)


def test_classes_by_rank_stand_in_for_a_rotation_only_where_they_lose_less_than_contention() -> None:
    by_rank = {1: 1, 2: 2, 3: 3}
    assert kept(many(33, 190, 195, 200)) == ([], by_rank, False), "the last falls behind now and then"
    assert kept(many(60, 167, 184, 200)) == ([], {}, False), "the gap is too short for its drift"
    assert kept(many(30, 200, 167, 144)) == ([], {}, False), "the fastest would have the slowest one's pace"
    assert kept(many(80, 200, 200, 200)) == ([], {}, False), "overloaded: the last would starve"
    assert kept(many(119, 199, 199))[:2] == ([], {}), "two jobs no less"
    assert kept(many(33, 190, 200)) == ([], {1: 1, 2: 2}, False)


def test_among_equals_the_slowest_is_the_reference() -> None:
    assert kept(many(88, 196, 200)) == ([1], {1: 1, 2: 2}, True)
    first, second = align(many(88, 196, 200)).schedules
    assert (first.reference, first.inject_us, first.period_us) == (False, 4000, 200_000)
    assert (second.reference, second.inject_us, second.gate) == (True, 0, False)
    assert kept(many(88, 196, 200, high=1))[2] is False, "a high job is not slowed"
    assert kept(many(60, 190, 195, 200)) == ([1, 2], {}, True)


def test_high_jobs_come_before_low_ones_on_every_link() -> None:
    by_rank, low_ones_share = {1: 0, 2: 1, 3: 2}, {1: 0, 2: 1, 3: 1}
    assert kept(many(60, 200, 200, 200, high=1)) == ([], by_rank, True)
    assert kept(many(57, 190, 195, 200, high=1)) == ([], by_rank, False)
    assert kept(many(30, 200, 167, 144, high=1)) == ([], low_ones_share, False)
    assert kept(many(90, 200, 200, 200, high=1)) == ([], low_ones_share, False), "the last would starve"
    assert kept(many(119, 199, 199, high=1))[1] == {1: 0, 2: 1}


def test_who_switches_one_way_off_gets_the_other_on_every_link() -> None:
    by_rank = {1: 1, 2: 2, 3: 3}
    assert kept(many(60, 200, 200, 200), gating=False) == ([], by_rank, True)
    assert kept(many(60, 200, 200, 200), rotation=False) == ([], by_rank, False)
    assert kept(many(60, 200, 200, 200, high=1), shaping=False) == ([2, 3], {}, True)


def test_hosts_without_traffic_classes_keep_jobs_apart_by_gates() -> None:
    for enabled, gated in ((True, []), (False, [2, 3])):
        config = load_config(flags={"shaping.enabled": enabled}, env={})
        jobs = many(30, 200, 200, 200, high=1)
        answer = policies_of(config).comm.align(jobs, CLUSTER)
        assert bool(answer.shaping) is enabled
        assert [s.job for s in answer.schedules if s.gate] == gated


def test_a_job_waits_for_its_slot_if_one_of_its_links_is_kept_by_gates() -> None:
    jobs = [
        *(placed(i, "h0", "h1", traffic=onoff(200, 60)) for i in (1, 2)),
        placed(3, "h1", "h2", traffic=onoff(200, 60)),
        placed(4, "h2", "h3", traffic=onoff(200, 25), priority=100),
        placed(5, "h2", "h3", traffic=onoff(200, 25)),
    ]
    gated, at_h1, _ = kept(jobs, "h1")
    assert (gated, at_h1) == ([1, 2, 3], {}), "job 4 is the reference; job 5 meets it under classes alone"
    assert kept(jobs, "h2")[1] == {4: 0, 3: 1, 5: 2}


def test_without_stage_3_the_first_scheme_stays() -> None:
    jobs = [placed(i, "h0", "h1", traffic=onoff(200, 30), priority=100 if i == 1 else 0) for i in (1, 2, 3)]
    quick, wide = align(jobs), align(jobs, offline=True)
    assert quick.recompute
    assert quick != wide
    off = align(jobs, stage3=False)
    assert not off.recompute
    assert off.schedules == quick.schedules
    assert align(jobs, offline=True, stage3=False) == off


def test_a_compact_scheme_leaves_no_cushion() -> None:
    """Metronome's ablation: the low job begins where the high one ends."""
    answer = align(pair(onoff(200, 50), onoff(200, 60)), compact=True)
    assert answer.score == 100
    assert [s.shift_us for s in answer.schedules] == [0, 50_000]
    assert answer.schedules[1].cushion_us == 0
    three = [placed(i, "h0", "h1", traffic=onoff(180, 30), priority=100 if i == 1 else 0) for i in (1, 2, 3)]
    compact = align(three, offline=True, compact=True)
    assert sorted(s.shift_us for s in compact.schedules) == [0, 30_000, 60_000]
    assert not compact.recompute


def test_regulation_is_a_switch_of_its_own() -> None:
    jobs = pair(onoff(196, 75), onoff(191, 75))
    with_it, without = align(jobs), align(jobs, regulation=False)
    assert all(s.regulated for s in with_it.schedules)
    assert not any(s.regulated for s in without.schedules)
    assert [s.shift_us for s in without.schedules] == [s.shift_us for s in with_it.schedules]
    assert [s.gate for s in without.schedules] == [False, True]


def test_a_collective_moves_at_the_pace_of_its_narrowest_link() -> None:
    cluster = snapshot(host("wide", nic_mbps=100), host("narrow", nic_mbps=50))
    jobs = [
        placed(1, "wide", "narrow", traffic=onoff(160, 30), priority=100),
        placed(2, "wide", "narrow", traffic=onoff(190, 60, 50)),
    ]
    answer = Metronome().align(jobs, cluster)
    assert answer.schedules[0].base_period_us == 190_000  # 30 ms at 100 Mbit/s become 60 at 50
    assert [link.link for link in answer.links] == ["narrow"]  # 50 + 50 fit through the wide one
    assert answer.score == 100
    assert answer.schedules[1].shift_us == 95_000
