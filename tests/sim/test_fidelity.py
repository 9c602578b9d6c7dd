"""The benchmark of fidelity without live hosts: what it makes of what it measured."""

from dataclasses import replace

import pytest

from bench.fidelity import Played, Repeated, averaged, calibrated, errors, scenarios
from rm.core.model.traffic import on_off
from rm.demo.simulated import Times, times

EQUAL = next(one for one in scenarios() if one.name == "equal pair, unmanaged")
ALONE = {job.name: on_off(200_000, 0.45, 100_000_000) for job in EQUAL.jobs}
PLAYED = Played(EQUAL, (0, 20_000), (30, 30), 0.005, ())
ONCE = Repeated((PLAYED,))


def test_only_iterations_count_that_all_jobs_made_together() -> None:
    own = [(n * 1e6, 1e6 + n) for n in range(10)]
    assert times(own, 3_500_000, 8e6) == Times(pytest.approx(1000.005), pytest.approx(1000.006))
    assert times(own[:2], 2_000_000, 8e6).mean_ms == pytest.approx(1000.0005), "all, where none is left"


def test_errors_are_of_the_simulation() -> None:
    assert errors([Times(200, 400)], [Times(210, 300)]) == [(pytest.approx(5), pytest.approx(-25))]


def test_the_weight_that_made_the_times_is_found_again() -> None:
    """Equal jobs that share fairly stay in step; else they slide apart."""
    assert averaged(ONCE, ALONE, 1.0)[0].mean_ms > averaged(ONCE, ALONE, 0.8)[0].mean_ms + 10
    for weight in (0.8, 1.0):
        made = Repeated((replace(PLAYED, live=averaged(ONCE, ALONE, weight)),))
        assert calibrated([made], ALONE) == weight


def test_what_was_played_several_times_is_compared_by_its_means() -> None:
    later = replace(PLAYED, begins_us=(0, 60_000), live=(Times(220, 300), Times(200, 200)))
    twice = Repeated((replace(PLAYED, live=(Times(180, 200), Times(200, 300))), later))
    assert twice.live == (Times(200, 250), Times(200, 250))
    assert twice.spread_pct == pytest.approx(100 * 2**0.5 * 20 / 200)
    single = [averaged(Repeated((one,)), ALONE, 1.0)[0].mean_ms for one in twice.runs]
    assert averaged(twice, ALONE, 1.0)[0].mean_ms == pytest.approx(sum(single) / 2)
