"""The exact searches against plain enumeration on small circles."""

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.interleave import (
    Circle,
    Demand,
    Distances,
    LinkLoad,
    Plan,
    canonical_phases,
    rank_key,
    search_block,
    search_offline,
    unify,
    utilisation,
)
from rm.policies.interleave.feasible import circular_runs, run_middle

FIXED = settings(derandomize=True, deadline=None, max_examples=250, database=None)
CAPACITY = 10


@st.composite
def problems(draw: st.DrawFn, most_links: int = 1) -> tuple[Plan, list[LinkLoad]]:
    """Two to four jobs of periods 24, 12 or 8 on circles of 18 or 24 slots, on one or more links.

    In half of them all jobs have one phase and every two contend.
    """
    count = draw(st.integers(2, 4))
    clashing = draw(st.booleans())
    rates, most_phases = ([6, 10], 1) if clashing else ([3, 5, 6, 10], 2)
    jobs = []
    for job in range(count):
        period = draw(st.sampled_from([24, 24, 12, 8]))
        phase = st.tuples(st.integers(0, period - 1), st.integers(1, period // 3), st.sampled_from(rates))
        phases = canonical_phases(period, draw(st.lists(phase, min_size=1, max_size=most_phases)))
        jobs.append(Demand(job, period, phases, rank_key(0, job, "")))
    slots = 18 if all(d.period > 8 for d in jobs) else 24  # 18: phases do not start with slots
    plan = unify(jobs, g_t=0, slots=slots, min_slots=1)
    assert plan is not None
    links = []
    for _ in range(draw(st.integers(1, most_links))):
        there = draw(st.sets(st.sampled_from(range(count)), min_size=min(2, count)))
        users = there if most_links > 1 else set(range(count))
        links.append(LinkLoad(CAPACITY, {d.job: d.phases for d in jobs if d.job in users}))
    return plan, links


def enumerated(circle: Circle) -> np.ndarray:
    """The excess of every scheme, indexed by the rotations of all jobs but the reference."""
    jobs = range(len(circle.n))
    total = np.zeros((len(circle.links), circle.slots, *circle.n[1:]), dtype=np.int64)
    for link, j in itertools.product(range(len(circle.links)), jobs):
        one = np.tile(np.array(circle.pattern[link][j]), circle.mul[j])
        turned = np.stack([np.roll(one, k) for k in range(circle.n[j] if j else 1)], axis=1)
        total[link] += turned.reshape(circle.slots, *(-1 if i == j and j else 1 for i in jobs[1:]))
    capacity = np.array(circle.capacity).reshape(-1, *[1] * (total.ndim - 1))
    return np.maximum(total - capacity, 0).sum(axis=(0, 1))


def least_distances(circle: Circle, distances: Distances) -> np.ndarray:
    """Psi of every scheme, indexed as in `enumerated`, from the pairs' own distances."""
    rotations = [np.zeros(circle.n[1:], dtype=np.int64), *np.indices(circle.n[1:])]
    pairs = [d[(rotations[b] - rotations[a]) % len(d)] for (a, b), d in distances.pairs.items()]
    return np.minimum.reduce(pairs)


@FIXED
@given(problems(most_links=3))
def test_online_finds_the_first_perfect_interval_or_the_least_excess(
    problem: tuple[Plan, list[LinkLoad]],
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
def test_offline_finds_the_largest_cushion(problem: tuple[Plan, list[LinkLoad]], metric: str) -> None:
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
    problem: tuple[Plan, list[LinkLoad]],
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
