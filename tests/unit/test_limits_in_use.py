"""How much of a limit is in use later on, beside a sum over all jobs by its definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.scheduling.limits.in_use import Claim, MinutesUse, Use, amount_at, run_of
from rm.core.scheduling.running import UNKNOWN_US
from rm.core.sharing.resources import Resources, at_once
from rm.core.sharing.usage import Usage
from rm.units import MINUTE_US
from tests.examples import examples

NOW_US = 1_700_000_000 * 1_000_000
# GPUs, until its expected end, how much longer its limit is; None: nobody knows when it ends
RUNS = st.lists(
    st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 300)), st.integers(0, 300)), max_size=8
)
HALF_LIVES_US = st.sampled_from([0, 30 * MINUTE_US, 7 * 24 * 60 * MINUTE_US])
MEASURES = ["gpus", "gpu_minutes_running", "billing_minutes"]


def stays_of(drawn) -> list[tuple[int, Claim]]:
    return [
        (
            UNKNOWN_US if runs is None else NOW_US + runs * MINUTE_US,
            Claim((), Resources(1, gpus=gpus), gpus / 2, ((runs or 0) + more) * MINUTE_US),
        )
        for gpus, runs, more in drawn
    ]


def use_of(measure: str, stays: list[tuple[int, Claim]], used: float, half_life_us: int) -> Use | MinutesUse:
    if measure == "gpus":
        return Use(sorted((end_us, at_once(claim.has, measure)) for end_us, claim in stays))
    before = Usage(used, 0.0, NOW_US) if measure == "billing_minutes" else None
    runs = [run_of(end_us, claim, measure, NOW_US) for end_us, claim in stays]
    return MinutesUse(runs, NOW_US, before, half_life_us)


def by_definition(measure, stays, used: float, half_life_us: int, at_us: int) -> float:
    total = sum(amount_at(measure, claim, NOW_US, end, at_us, half_life_us) for end, claim in stays)
    if measure == "billing_minutes":
        total += Usage(used, 0.0, NOW_US).at(at_us, half_life_us) / 60
    return total


@pytest.mark.parametrize("measure", MEASURES)
@given(drawn=RUNS, late=RUNS, used=st.integers(0, 50_000), half_life_us=HALF_LIVES_US, at=st.integers(0, 900))
@settings(max_examples=examples(60), deadline=None)
def test_what_is_in_use_is_what_each_has_then(measure, drawn, late, used, half_life_us: int, at: int) -> None:
    stays = stays_of(drawn)
    use = use_of(measure, stays, used, half_life_us)
    for end_us, claim in stays_of(late):  # also what a pass places
        use.add(end_us, claim, measure)
    at_us = NOW_US + at * MINUTE_US
    expected = by_definition(measure, stays + stays_of(late), used, half_life_us, at_us)
    assert use.at(at_us) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
@given(drawn=RUNS, used=st.integers(0, 50_000), half_life_us=HALF_LIVES_US, most=st.integers(-1, 2_000))
@settings(max_examples=examples(60), deadline=None)
def test_it_leaves_enough_from_the_first_time_on_at_which_it_does(
    measure, drawn, used, half_life_us: int, most: int
) -> None:
    use = use_of(measure, stays_of(drawn), used, half_life_us)
    free_us = use.leaves_us(most)
    if free_us is None:
        assert most <= 0 or use.at(UNKNOWN_US - 1) > most
        return
    assert use.at(free_us) <= most + 1e-6
    if free_us > NOW_US:
        assert use.at(free_us - 1) > most - 1e-6


@given(drawn=RUNS, half_life_us=HALF_LIVES_US, steps=st.lists(st.integers(0, 400), max_size=6))
@settings(max_examples=examples(30), deadline=None)
def test_minutes_only_fall_while_nothing_starts(drawn, half_life_us: int, steps: list[int]) -> None:
    for measure in MEASURES:
        use, at_us = use_of(measure, stays_of(drawn), 600.0, half_life_us), NOW_US
        for step in steps:
            before, at_us = use.at(at_us), at_us + step * MINUTE_US
            assert use.at(at_us) <= before + 1e-6


@pytest.mark.parametrize("measure", ["gpus", "gpu_minutes_running"])
def test_all_of_a_limit_is_left_once_the_last_has_ended(measure: str) -> None:
    use = use_of(measure, stays_of([(2, 10, 0), (1, 30, 0)]), 0, 0)
    assert use.leaves_us(0) == NOW_US + 30 * MINUTE_US
    assert use.leaves_us(-1) is None
