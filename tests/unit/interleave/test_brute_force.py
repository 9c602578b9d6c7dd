"""The exact searches against plain enumeration on small circles."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.interleave import (
    Circle,
    Demand,
    Distances,
    LinkLoad,
    canonical_phases,
    rank_key,
    search_block,
    search_offline,
    unify,
    utilisation,
)
from rm.policies.interleave.feasible import circular_runs, run_middle
from tests.enumeration import CAPACITY, Problem, crowds, enumerated, least_distances, problems
from tests.examples import examples

FIXED = settings(max_examples=examples(250))


@FIXED
@given(problems(most_links=3))
def test_online_finds_the_first_perfect_interval_or_the_least_excess(
    problem: Problem,
) -> None:
    plan, links = problem
    circle = Circle(plan, links)
    found = search_block(plan, links)
    excess = enumerated(circle)
    assert found.exact
    assert found.excess == sum(circle.excess(found.k))
    if excess.min() == 0:
        first = tuple(np.argwhere(excess == 0)[0][:-1])
        allowed = sum(1 << int(k) for k in np.flatnonzero(excess[first] == 0))
        start, length = circular_runs(allowed, circle.n[-1])[0]
        assert found.k == (0, *first, run_middle(start, length, circle.n[-1]))
    else:
        assert found.excess == excess.min()
        assert found.k == (0, *np.argwhere(excess == excess.min())[0])


@FIXED
@given(problems(), st.sampled_from(["gap", "midpoint"]))
def test_offline_finds_the_largest_cushion(problem: Problem, metric: str) -> None:
    plan, links = problem
    circle = Circle(plan, links)
    distances = Distances(circle, metric)
    perfect = enumerated(circle) == 0
    everywhere = search_offline(plan, links, metric, "all")
    among_middles = search_offline(plan, links, metric, "middles")
    if not perfect.any():
        assert everywhere is None
        assert among_middles is None
        return
    assert everywhere is not None
    assert among_middles is not None
    n = circle.n[-1]
    middles = np.zeros_like(perfect)
    for prefix in np.argwhere(perfect.any(axis=-1)):
        allowed = sum(1 << int(k) for k in np.flatnonzero(perfect[tuple(prefix)]))
        for start, length in circular_runs(allowed, n):
            middles[(*prefix, run_middle(start, length, n))] = True
    for found, candidates in ((everywhere, perfect), (among_middles, middles)):
        assert found.exact
        if not distances.pairs:
            assert found.psi is None
            continue
        psi = np.where(candidates, least_distances(circle, distances), np.iinfo(np.int64).min)
        assert found.psi == distances.ticks(int(psi.max()))
        assert found.scheme.k == (0, *np.argwhere(psi == psi.max())[0])


@FIXED
@given(problems())
def test_perfect_in_slots_means_no_contention_in_continuous_time(
    problem: Problem,
) -> None:
    plan, links = problem
    found = search_block(plan, links)
    phases = [links[0].phases[job] for job in plan.order]
    _, over = utilisation(phases, found.k, plan.mul, plan.perimeter, plan.slots, CAPACITY)
    assert over <= Fraction(found.excess, CAPACITY * plan.slots)


@FIXED
@given(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 40), st.integers(0, 9)), max_size=5))
def test_canonical_phases_keep_the_demand_at_every_tick(phases: list[tuple[int, int, int]]) -> None:
    made = canonical_phases(40, phases)
    ends = [o + m for o, m, _ in made]
    assert all(end <= o for end, (o, _, _) in zip(ends, made[1:], strict=False))
    for tick in range(40):
        wanted = sum(bw for o, m, bw in phases if (tick - o) % 40 < m)
        assert sum(bw for o, m, bw in made if o <= tick < o + m) == wanted


@settings(FIXED, max_examples=examples(60))
@given(crowds())
def test_many_jobs(problem: Problem) -> None:
    plan, links = problem
    circle = Circle(plan, links)
    excess = enumerated(circle)
    found = search_block(plan, links)
    assert found.exact
    assert found.excess == excess.min()
    widest = search_offline(plan, links)
    assert (widest is None) == (excess.min() > 0)
    distances = Distances(circle)
    if widest is not None and distances.pairs:
        psi = np.where(excess == 0, least_distances(circle, distances), np.iinfo(np.int64).min)
        assert widest.psi == distances.ticks(int(psi.max()))


@FIXED
@given(problems(most_links=2), st.integers(1, 300))
def test_the_best_score_is_within_the_gap_whatever_the_budget(problem: Problem, budget: int) -> None:
    plan, links = problem
    circle = Circle(plan, links)
    least = int(enumerated(circle).min())
    best = 100 * (1 - least / circle.room)
    found = search_block(plan, links, budget)
    assert found.excess == sum(circle.excess(found.k)) >= least
    assert found.score <= best + 1e-9
    assert best <= found.bound + 1e-9
    assert best <= found.score + found.gap + 1e-9
    if found.exact:
        assert found.excess == least
        assert found.gap == 0


@FIXED
@given(problems(), st.sampled_from(["gap", "midpoint"]), st.integers(1, 300))
def test_the_largest_cushion_is_within_the_bound_whatever_the_budget(
    problem: Problem, metric: str, budget: int
) -> None:
    plan, links = problem
    circle = Circle(plan, links)
    distances = Distances(circle, metric)
    found = search_offline(plan, links, metric, budget=budget)
    if found is None or found.psi is None or found.bound is None:
        return
    psi = np.where(enumerated(circle) == 0, least_distances(circle, distances), np.iinfo(np.int64).min)
    largest = distances.ticks(int(psi.max()))
    assert sum(circle.excess(found.scheme.k)) == 0
    assert distances.psi(found.scheme.k) == found.psi <= largest <= found.bound
    assert not found.exact or found.psi == largest


def test_small_budgets_leave_gaps_and_do_not_hide_them() -> None:
    plan, links = _crowded()
    by_budget = [search_block(plan, links, budget) for budget in (1, 100, 100_000)]
    assert [found.exact for found in by_budget] == [False, False, True]
    assert all(found.gap > 0 for found in by_budget[:2])
    assert by_budget[0].score <= by_budget[1].score <= by_budget[2].score == by_budget[2].bound


@pytest.mark.parametrize("slots", [72, 360, 3600])
def test_fine_circles_are_decided_as_coarse_ones_are(slots: int) -> None:
    """Phases that begin and end with slots of the coarsest: the best excess is the same share."""
    plan, links = _crowded(slots, phases=1)
    found = search_block(plan, links, 200_000)
    assert found.exact
    assert found.excess * 72 == search_block(*_crowded(phases=1), 200_000).excess * slots
    assert found.slots == slots


def _crowded(slots: int = 72, phases: int = 2) -> Problem:
    """Five jobs that want more than the link carries."""
    jobs = [
        Demand(j, t, ((0, t // 6, 6), (t // 2, t // 12, 10))[:phases], rank_key(0, j, ""))
        for j, t in enumerate((360, 180, 120, 360, 180))
    ]
    plan = unify(jobs, slots=slots)
    assert plan is not None
    return plan, [LinkLoad(CAPACITY, {d.job: d.phases for d in jobs})]


def test_hundreds_of_jobs_and_rates_without_a_common_divisor_are_answered() -> None:
    jobs = [Demand(j, 360, ((0, 1, 1_000_000_007 + j),), rank_key(0, j, "")) for j in range(400)]
    plan = unify(jobs, slots=36)
    assert plan is not None
    link = LinkLoad(8 * 10**9, {d.job: d.phases for d in jobs})
    found = search_block(plan, [link], 2_000)
    assert found.excess == sum(Circle(plan, [link]).excess(found.k))
    assert found.score <= found.bound < 100


def test_a_budget_too_small_still_gives_a_scheme_and_an_honest_bound() -> None:
    periods = (120, 60, 40, 120, 60)
    jobs = [
        Demand(j, t, ((0, t // 5, 6), (t // 2, t // 10, 10)), rank_key(0, j, ""))
        for j, t in enumerate(periods)
    ]
    plan = unify(jobs)
    assert plan is not None
    link = LinkLoad(10, {d.job: d.phases for d in jobs})
    hasty, thorough = search_block(plan, [link], budget=3), search_block(plan, [link])
    assert not hasty.exact
    assert hasty.score <= thorough.score <= hasty.bound
    assert hasty.excess == sum(Circle(plan, [link]).excess(hasty.k))
