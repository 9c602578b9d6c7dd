"""The fluid estimate, and the guard that keeps a plan only where it gains."""

import pytest

from rm.policies.foresight import Links, guarded, mean_iteration_us, schedule
from rm.policies.foresight.estimate import max_min
from tests.unit.foresight.demands import UPLINK, demand, links, parallel


def test_max_min_fair_rates() -> None:
    """Three streams share u; the one that is held there to a third leaves two thirds of v."""
    u, v = ("u", True, -1), ("v", True, -1)
    rates = max_min([(1.0, (u, v)), (1.0, (u,)), (1.0, (u,)), (1.0, (v,))], {u: 1.0, v: 1.0})
    assert rates == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])
    assert max_min([(0.2, (u,)), (1.0, (u,)), (0.5, ())], {u: 1.0}) == pytest.approx([0.2, 0.8, 0.5])
    assert max_min([], {}) == []


def test_two_jobs_on_one_spine_slow_each_other_down_until_they_drift_apart() -> None:
    """Both send at 2: at half the rate until 6, so the first iteration lasts 6; together for ever."""
    jobs = [demand(j, 4, [(2, 4)], parallel(1), iterations=3) for j in (1, 2)]
    assert mean_iteration_us(jobs, links(1)) == pytest.approx(6)
    plan = schedule(jobs, links(1))
    assert plan.contention_free
    assert mean_iteration_us(jobs, links(1), plan) == pytest.approx((4 + 4 + 4 + 6 + 4 + 4) / 6)


def test_flows_without_a_route_collide_by_chance_and_routed_ones_do_not() -> None:
    jobs = [demand(j, 4, [(2, 4)], parallel(1, first=j), iterations=2) for j in (1, 2, 3, 4)]
    alone = mean_iteration_us(jobs, links(4), schedule(jobs, links(4), "routing"))
    assert alone == pytest.approx(4)
    assert 4 < mean_iteration_us(jobs, links(4), draws=8) < 10
    timed = schedule(jobs, links(4), "timing")
    assert mean_iteration_us(jobs, links(4), timed) == pytest.approx(mean_iteration_us(jobs, links(4)))


def test_hosts_links_are_shared_too() -> None:
    where = Links(None, host_bps={"a0": UPLINK})
    jobs = [demand(j, 4, [(2, 4)], [("a0", f"b{j}")]) for j in (1, 2)]
    assert mean_iteration_us(jobs, where) == pytest.approx(6)


def test_a_plan_that_costs_more_than_it_saves_is_not_taken() -> None:
    """A short burst must wait for a long one of half its rate that leaves it almost all it needs."""
    slow = demand(1, 40, [(0, 40)], parallel(1), rate=UPLINK // 8)
    quick = demand(2, 4, [(2, 4)], parallel(1, first=1), iterations=10)
    plan = schedule([slow, quick], links(1))

    def mean(plan: object) -> float:
        return mean_iteration_us([slow, quick], links(1), plan)  # type: ignore[arg-type]

    assert mean(plan) > mean(None)
    assert guarded(plan, mean, None) == (None, mean(None))
    even = schedule([slow], links(1))
    assert guarded(even, lambda p: mean_iteration_us([slow], links(1), p), None)[0] is even


def test_nobody_is_better_off_by_chance_than_by_a_guarded_plan() -> None:
    values = {"plan": 3.0, "nothing": 2.0}
    assert guarded("plan", values.__getitem__, "nothing") == ("nothing", 2)
    values["plan"] = 2.0
    assert guarded("plan", values.__getitem__, "nothing") == ("plan", 2)
