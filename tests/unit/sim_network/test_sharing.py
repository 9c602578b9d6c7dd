"""Max-min fair rates: the optimality conditions, exact filling, and what priorities promise."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.sim.network.sharing import Demand, max_min
from tests.examples import examples

FIXED = settings(max_examples=examples(150))
Problem = tuple[list[int], list[Demand]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    capacity = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    path = st.sets(st.sampled_from(range(len(capacity))), min_size=1, max_size=3)
    demand = st.builds(
        Demand,
        path.map(lambda links: tuple(sorted(links))),
        st.sampled_from([float("inf"), float("inf"), 0.0, 0.5, 1.0, 3.0]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([1.0, 1.0, 1.0, 0.25, 3.0]),
    )
    return capacity, draw(st.lists(demand, min_size=1, max_size=8))


def exact(capacity: list[int], demands: list[Demand]) -> list[Fraction]:
    """All of a class grow together until a link is full or a cap is reached, in exact numbers."""
    room = [Fraction(c) for c in capacity]
    rate = [Fraction(0)] * len(demands)
    for priority in sorted({d.priority for d in demands}):
        growing = {i for i, d in enumerate(demands) if d.priority == priority}
        while growing:
            steps = []
            for i in growing:
                if demands[i].cap != float("inf"):
                    steps.append((Fraction(demands[i].cap) - rate[i]) / Fraction(demands[i].weight))
            for link, left in enumerate(room):
                weight = sum(Fraction(demands[i].weight) for i in growing if link in demands[i].links)
                if weight:
                    steps.append(left / weight)
            step = min(steps)
            for i in growing:
                rate[i] += step * Fraction(demands[i].weight)
                for link in demands[i].links:
                    room[link] -= step * Fraction(demands[i].weight)
            full = {link for link, left in enumerate(room) if left == 0}
            growing = {i for i in growing if rate[i] != demands[i].cap and not full & set(demands[i].links)}
    return rate


def test_the_worked_example() -> None:
    """A over u and v, B and D over u, C over v: u is shared by three, and C gets the rest of v."""
    rates = max_min([1, 1], [Demand((0, 1)), Demand((0,)), Demand((1,)), Demand((0,))])
    assert rates == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1 / 3])


def test_weights_and_caps() -> None:
    assert max_min([12], [Demand((0,), weight=2.0), Demand((0,))]) == pytest.approx([8, 4])
    assert max_min([12], [Demand((0,), cap=2.0), Demand((0,)), Demand((0,))]) == pytest.approx([2, 5, 5])
    assert max_min([12], [Demand((0,), cap=5.0), Demand((0,), priority=1)]) == pytest.approx([5, 7])
    assert max_min([12], [Demand((0,), cap=0.0), Demand((), cap=3.0)]) == pytest.approx([0, 3])


@FIXED
@given(problems())
def test_rates_are_those_of_exact_filling(problem: Problem) -> None:
    capacity, demands = problem
    assert max_min(capacity, demands) == pytest.approx([float(r) for r in exact(*problem)], abs=1e-9)


@FIXED
@given(problems())
def test_no_link_carries_more_than_its_capacity(problem: Problem) -> None:
    capacity, demands = problem
    rates = max_min(capacity, demands)
    for link, most in enumerate(capacity):
        assert sum(r for r, d in zip(rates, demands, strict=True) if link in d.links) <= most * (1 + 1e-9)


@FIXED
@given(problems())
def test_whoever_is_below_its_cap_has_a_bottleneck(problem: Problem) -> None:
    """Max-min fairness is just this: a full link on which nobody of its class has a higher rate per
    weight, and on which nobody of a lower class has anything."""
    capacity, demands = problem
    rates = max_min(capacity, demands)
    for mine, demand in zip(rates, demands, strict=True):
        if mine >= demand.cap * (1 - 1e-9):
            continue
        assert any(
            sum(r for r, _ in on) >= capacity[link] * (1 - 1e-9)
            and all(
                r / d.weight <= mine / demand.weight * (1 + 1e-9) + 1e-9
                for r, d in on
                if d.priority == demand.priority
            )
            and all(r <= 1e-9 for r, d in on if d.priority > demand.priority)
            for link in demand.links
            for on in [[(r, d) for r, d in zip(rates, demands, strict=True) if link in d.links]]
        )


@FIXED
@given(problems())
def test_a_priority_never_notices_the_lower_ones(problem: Problem) -> None:
    capacity, demands = problem
    rates = max_min(capacity, demands)
    for priority in {d.priority for d in demands}:
        upper = [(d, r) for d, r in zip(demands, rates, strict=True) if d.priority <= priority]
        alone = max_min(capacity, [d for d, _ in upper])
        assert alone == pytest.approx([r for _, r in upper], abs=1e-9)


@FIXED
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_demands_does_not_matter(problem: Problem, chance: object) -> None:
    capacity, demands = problem
    order = list(range(len(demands)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    rates = max_min(capacity, demands)
    assert max_min(capacity, [demands[i] for i in order]) == pytest.approx(
        [rates[i] for i in order], abs=1e-9
    )


def test_very_unequal_weights_lose_nothing_to_rounding() -> None:
    demands = [Demand((0,), cap=1.0, weight=1e9), Demand((0,)), Demand((0,))]
    assert max_min([3], demands) == pytest.approx([1, 1, 1])
