"""What is promised holds in time, and what fits in time is found: default mode against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.interleave.answer import Answer, answer, thresholds_for
from rm.policies.interleave.problem import problem_from
from rm.policies.interleave.score import utilisation
from tests.examples import examples

FIXED = settings(max_examples=examples(150), deadline=None)
FULL = 10_000


def answered(*jobs: tuple[float, float, float], high: int = 0, paper: bool = False) -> Answer:
    """For jobs of one phase: (period, duration) in ms, Mbit/s of 10,000."""
    asked = {
        "capacity_mbps": FULL,
        "jobs": [
            {
                "name": f"j{i}", "period_ms": period, "priority": "high" if i < high else "low",
                "phases": [{"duration_ms": duration, "bandwidth_mbps": rate}],
            }
            for i, (period, duration, rate) in enumerate(jobs)
        ],
    }  # fmt: skip
    problem = problem_from(asked)
    return answer(problem, thresholds_for(problem, paper))


def least_over(jobs: Sequence[tuple[int, int, int]], capacity: int, perimeter: int, steps: int) -> float:
    """The least excess of any rotation in `steps` places each, by enumeration, in continuous time."""
    phases = [((0, duration, rate),) for _, duration, rate in jobs]
    mul = [perimeter // period for period, _, _ in jobs]
    places = [range(steps // b) for b in mul[1:]]
    return min(
        float(utilisation(phases, [0, *k], mul, perimeter, steps, capacity)[1])
        for k in itertools.product(*places)
    )


@pytest.mark.parametrize("order", list(itertools.permutations((196, 198, 200))))
def test_among_equals_the_slowest_sets_the_pace(order: tuple[int, ...]) -> None:
    found = answered(*((period, 50, FULL) for period in order))
    assert found.unmatched == ()
    assert found.links[0].score == 100
    assert {float(period) for period in found.periods.values()} == {200_000}
    assert {order[job]: float(idle) for job, idle in found.injected.items()} == {196: 4000, 198: 2000, 200: 0}


def test_a_high_job_is_not_slowed_for_a_low_one() -> None:
    found = answered((196, 86, FULL), (200, 86, FULL), high=1)
    assert found.unmatched == (0, 1)
    assert found.links[0].laggards == (1,)


def test_what_fits_in_time_is_perfect_though_it_does_not_fit_in_slots() -> None:
    assert answered((40, 14, FULL), (60, 6, FULL)).links[0].score == 100
    assert answered((40, 14, FULL), (60, 6, FULL), paper=True).links[0].score < 100


def test_scores_are_those_of_time() -> None:
    found = answered((300, 120, 8000), (150, 60, 9000), (300, 120, 7000)).links[0]
    best = least_over([(300, 120, 8000), (150, 60, 9000), (300, 120, 7000)], FULL, 300, 60)
    assert found.score == pytest.approx(100 * (1 - best), abs=0.1)


@FIXED
@given(st.lists(st.integers(5_000, 60_000), min_size=2, max_size=4), st.integers(940, 980))
def test_equal_periods_that_leave_room_are_kept_apart(weights: list[int], fill_permille: int) -> None:
    """Any such jobs fit, one behind the other; slots of a 72nd hardly ever hold them."""
    period_us = 200_000
    share = period_us * fill_permille // 1000
    jobs = [(period_us / 1000, max(1, share * w // sum(weights)) / 1000, FULL) for w in weights]
    found = answered(*jobs).links[0]
    assert found.score == 100
    assert found.solution is not None
    plan, scheme = found.solution.plan, found.solution.scheme
    phases = [found.load.phases[job] for job in plan.order]
    over = utilisation(phases, scheme.k, plan.mul, plan.perimeter, plan.slots, found.load.capacity)[1]
    assert over == 0


@FIXED
@given(
    st.lists(
        st.tuples(st.sampled_from([100, 200]), st.integers(10, 80), st.sampled_from([6000, 8000, FULL])),
        min_size=2, max_size=3,
    )
)  # fmt: skip
def test_no_rotation_is_better_than_the_one_that_is_found(jobs: list[tuple[int, int, int]]) -> None:
    perimeter = max(period for period, _, _ in jobs)
    found = answered(*jobs).links[0]
    if not found.contended:
        return
    ranked = sorted(jobs, key=lambda job: -job[0])
    best = 100 * (1 - least_over(ranked, FULL, perimeter, 40))
    assert found.score >= best - 0.1
