"""The policy: from placed jobs to an alignment with a plan (milliseconds and Mbit/s)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rm.core import registry
from rm.core.journal.plain import to_plain
from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.network.fabric import Fabric
from rm.core.model.snapshot import PlacedJob
from rm.errors import ConfigError
from tests.builders import MBPS, host, placed, profile, snapshot

HOSTS = [host(f"{rack}{i}", nic_mbps=100) for rack in "abc" for i in range(4)]
BURST = profile(200, (100, 100, 100))


def align(jobs: Sequence[PlacedJob], spines: int = 2, **options: object) -> Alignment:
    fabric = Fabric({h.name: h.name[0] for h in HOSTS}, spines, 100 * MBPS) if spines else None
    cluster = replace(snapshot(*HOSTS, placed=jobs), fabric=fabric)
    answer = registry.load("comm", "foresight", options).align(jobs, cluster)
    assert isinstance(answer, Alignment)
    return answer


def test_jobs_inside_racks_and_on_hosts_of_their_own_need_nothing() -> None:
    jobs = [placed(1, "a0", "a1", traffic=BURST), placed(2, "a2", "a3", traffic=BURST)]
    assert align(jobs) == NOTHING_TO_ALIGN
    assert align([placed(1, "a0", "b0", traffic=BURST)], spines=0) == NOTHING_TO_ALIGN


def test_two_jobs_over_enough_spines_are_only_routed() -> None:
    answer = align([placed(1, "a0", "b0", traffic=BURST), placed(2, "a1", "b1", traffic=BURST)])
    (plan,) = answer.plans
    assert plan.contention_free
    one, two = plan.at(1, 0), plan.at(2, 0)
    assert one is not None
    assert two is not None
    assert one.delay_us == two.delay_us == 0
    up = [i.ranges[0].route(*ends) for i, ends in ((one, ("a0", "b0")), (two, ("a1", "b1")))]
    assert [r.cap_bps for r in up if r] == [100 * MBPS] * 2
    assert len({r.spines for r in up if r}) == 2, "two flows on one spine"
    assert (answer.score, answer.links, answer.unmatched) == (100.0, (), ())


def test_two_jobs_on_one_spine_are_shifted_and_their_hosts_can_keep_that() -> None:
    jobs = [placed(1, "a0", "b0", traffic=BURST), placed(2, "a1", "b1", traffic=BURST, priority=100)]
    answer = align(jobs, spines=1)
    (plan,) = answer.plans
    assert [i.delay_us for i in plan.iterations[2]] == [100_000]
    second = plan.at(2, 1)
    assert second is not None
    assert (second.start_us, second.delay_us) == (300_000, 0)
    assert [link.link for link in answer.links] == ["leaf:a", "leaf:b"]
    assert {(s.job, s.shift_us, s.period_us, s.reference) for s in answer.schedules} == {
        (1, 0, 200_000, True),
        (2, 100_000, 200_000, False),
    }
    assert answer.unmatched == ()
    assert answer.score == 100  # the shift is made once


def test_periods_that_do_not_match_are_in_the_plan_alone() -> None:
    jobs = [
        placed(1, "a0", "b0", traffic=profile(40, (20, 20, 100))),
        placed(2, "a1", "b1", traffic=profile(60, (30, 30, 100))),
    ]
    answer = align(jobs, spines=1, throttling=False, guard=False)
    (plan,) = answer.plans
    delays = {j: [i.delay_us // 1000 for i in p] for j, p in plan.iterations.items()}
    assert delays == {1: [0, 10, 20], 2: [10, 0]}
    assert answer.schedules == ()
    assert answer.unmatched == (1, 2)


def test_with_a_margin_iterations_are_planned_longer_and_still_nothing_meets() -> None:
    jobs = [
        placed(1, "a0", "b0", traffic=profile(40, (20, 18, 100))),
        placed(2, "a1", "b1", traffic=profile(60, (30, 27, 100))),
    ]
    exact, wide = (align(jobs, spines=1, throttling=False, guard=False, margin=m) for m in (0.0, 0.1))
    lengths = [{i.length_us for p in one.plans[0].iterations.values() for i in p} for one in (exact, wide)]
    assert lengths == [{40_000, 60_000}, {44_000, 66_000}]
    assert wide.plans[0].contention_free


def test_without_a_fabric_shared_hosts_are_timed_and_nothing_is_routed() -> None:
    jobs = [placed(1, "a0", "b0", traffic=BURST), placed(2, "a0", "b1", traffic=BURST)]
    answer = align(jobs, spines=0)
    (plan,) = answer.plans
    assert plan.iterations[2][0].delay_us == 100_000
    assert not any(i.ranges for p in plan.iterations.values() for i in p)
    assert [link.link for link in answer.links] == ["a0"]


def test_where_a_plan_does_not_pay_there_is_none() -> None:
    """Job 1 always sends a little; nobody would ever have the link for himself."""
    jobs = [
        placed(1, "a0", "b0", traffic=profile(400, (0, 400, 10))),
        placed(2, "a1", "b1", traffic=profile(40, (20, 20, 100))),
    ]
    answer = align(jobs, spines=1)
    assert answer.plans == ()
    assert answer.unmatched == (1, 2)
    assert 80 < answer.score < 100
    assert align(jobs, spines=1, guard=False).plans


def test_components_are_planned_each_for_itself() -> None:
    """Jobs 1 and 2 meet at rack a; job 3 shares no direction of no rack with them."""
    wide = profile(300, (0, 200, 100))
    near = [placed(1, "a0", "b0", traffic=BURST), placed(2, "a1", "b1", traffic=BURST)]
    far = [placed(3, "c0", "c1", traffic=wide), placed(4, "c0", "c2", traffic=wide)]
    both, first = align([*near, *far], spines=1), align(near, spines=1)
    assert both.plans[0] == first.plans[0]
    assert set(both.plans[1].iterations) == {3, 4}
    assert {link.link for link in both.links} == {"leaf:a", "leaf:b", "c0"}


def test_an_alignment_with_a_plan_can_be_written_down() -> None:
    answer = align([placed(1, "a0", "b0", traffic=BURST), placed(2, "a1", "b1", traffic=BURST)])
    assert to_plain(answer)["plans"][0]["contention_free"] is True


@pytest.mark.parametrize(
    "wrong", [{"variant": "best"}, {"repair": "none"}, {"units": 0}, {"horizon_ms": 0}, {"iterations": 0}]
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="foresight"):
        registry.load("comm", "foresight", wrong)


def test_what_would_take_a_plan_of_thousands_of_iterations_is_not_planned() -> None:
    """Planning takes the leader's turn: 3.5 s for this round of 7,001 iterations."""
    short = [placed(n, f"a{n}", f"b{n}", traffic=profile(20, (10, 7, 100))) for n in range(3)]
    beside = [*short, placed(3, "a3", "b3", traffic=profile(20_000, (10_000, 7_000, 100)))]
    answer = align(beside)
    assert answer.plans == ()
    assert answer.unmatched == (0, 1, 2, 3)
    assert 0 < answer.score < 100, "what is lost without a plan is said nevertheless"
    assert align(short).plans, "those that repeat themselves soon are planned"
