"""The benchmark of fidelity without live hosts: what it makes of what it measured."""

from dataclasses import replace

import pytest

from bench.fidelity import (
    LIVE_S,
    ROUND,
    RUNS_FREE,
    RUNS_MANAGED,
    RUNS_MOST,
    Alone,
    Played,
    Predicted,
    Repeated,
    Span,
    averaged,
    beyond_open,
    calibrated,
    errors,
    machine_of,
    next_scenario,
    runs_at_once,
    scenarios,
    standard_errors_pct,
    table,
    wants_more,
)
from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.demo.scenario import MANAGED, Mode
from rm.demo.simulated import MEASURED, Times, pooled, within
from rm.demo.training import Iteration, JobRun
from rm.sim.network.unfairness import FAIR, Unfairness
from rm.sim.workload import Noise
from tests.examples import some

EQUAL = next(one for one in scenarios() if one.name == "equal pair, unmanaged")
PROFILE = TrafficProfile(200_000, (Phase(110_000, 90_000, 100_000_000),))
ALONE = {job.name: Alone(PROFILE, 90_000) for job in EQUAL.jobs}
STEADY = Noise(factors=(0.995, 1.0, 1.005))
PLAYED = Played(EQUAL, (0, 20_000), (30, 30), (STEADY, STEADY), ())
ONCE = Repeated((PLAYED,))


def test_only_iterations_count_that_all_jobs_made_together() -> None:
    own = [(n * 1e6, 1e6 + n) for n in range(10)]
    assert within(own, 3_500_000, 8e6) == [1e6 + n for n in (4, 5, 6)]
    assert within(own[:2], 2_000_000, 8e6) == [1e6, 1e6 + 1], "all, where none is left"


def test_the_99th_percentile_is_of_all_runs_together() -> None:
    """Of each run alone it would be its longest iteration."""
    calm, disturbed = [200_000.0] * 60, [200_000.0] * 59 + [900_000.0]
    (both,) = pooled([[calm], [disturbed]])
    assert both == Times(pytest.approx(200 + 700 / 120), 200)


def test_what_a_job_waited_for_the_machine_comes_from_its_own_computing_and_a_control() -> None:
    def run(*iterations: tuple[int, int, int]) -> list[Iteration]:
        return [Iteration(0, compute + comm + paused, paused, comm) for compute, comm, paused in iterations]

    job = run((110_000, 170_000, 0), (121_000, 90_000, 7_000))
    control = run((110_000, 85_000, 0), (110_000, 97_000, 0))
    found = machine_of(job, ALONE["equal-1"], control)
    assert found == Noise(factors=(1.0, 1.1), late_us=(0.0, 12_000.0))


def test_what_jobs_wait_while_they_begin_is_no_part_of_the_span_that_is_compared() -> None:
    iterations = [Iteration(n * 200_000, 200_000, 0, 90_000) for n in range(5)]
    ran = JobRun(EQUAL.jobs[0], 1, iterations=iterations)
    assert Span(150_000, 900_000).of(ran) == iterations[1:4]
    assert Span(150_000, 300_000).of(ran) == iterations, "all, where it holds none"


@pytest.mark.parametrize("unfair", [FAIR, MEASURED])
def test_waits_for_the_machine_lengthen_iterations_by_themselves(unfair: Unfairness) -> None:
    """What nobody shares a link with takes its profile and the waits, and its tail is theirs."""
    one = replace(EQUAL, jobs=EQUAL.jobs[:1])
    noise = Noise(factors=(1.0,), late_us=(0.0,) * 9 + (50_000.0,))
    played = replace(PLAYED, scenario=one, begins_us=(0,), iterations=(400,), machine=(noise,))
    (found,) = averaged(Repeated((played,)), {"equal-1": Alone(PROFILE, 85_000)}, unfair)
    assert found.mean_ms == pytest.approx(195 + 5, abs=1)
    assert found.p99_ms == pytest.approx(245)


def test_errors_are_of_the_simulation() -> None:
    assert errors([Times(200, 400)], [Times(210, 300)]) == [(pytest.approx(5), pytest.approx(-25))]


def test_equal_jobs_that_share_fairly_stay_in_step_and_else_slide_apart() -> None:
    apart = averaged(ONCE, ALONE, Unfairness(0.72))[0].mean_ms
    assert averaged(ONCE, ALONE, FAIR)[0].mean_ms > apart + 10


@pytest.mark.parametrize("weight", some([0.72, 1.0]))
def test_the_weight_that_made_the_times_is_found_again(weight: float) -> None:
    made = averaged(ONCE, ALONE, replace(MEASURED, newcomer=weight, luck=0.0), 60)
    measured = Repeated((replace(PLAYED, took_us=as_measured((*made, *made))),))
    found = calibrated([measured], ALONE)
    assert (found.newcomer, found.luck) == (weight, 0)


def test_what_was_played_several_times_is_compared_as_one() -> None:
    later = replace(PLAYED, begins_us=(0, 60_000), took_us=([220_000.0] * 2, [200_000.0] * 2))
    twice = Repeated((replace(PLAYED, took_us=([180_000.0] * 2, [200_000.0] * 2)), later))
    assert twice.live == (Times(200, 220),), "jobs that differ by their names are one kind"
    assert twice.spread_pct == pytest.approx(100 * 2**0.5 * 10 / 200)
    both = averaged(twice, ALONE, FAIR)[0].mean_ms
    assert min(means := [averaged(Repeated((one,)), ALONE, FAIR)[0].mean_ms for one in twice.runs]) < both
    assert both < max(means)


def test_the_table_tells_each_kind_of_jobs_and_how_far_off_the_simulation_is() -> None:
    live = Repeated((replace(PLAYED, took_us=([200_000.0], [200_000.0])),) * 2)
    *_, row = table([Predicted(live, {"fair": (Times(210, 190),), "as measured": (Times(199, 202),)})])
    figures = "200.0 ± 0.0 %, 200.0 ± 0.0 % | 2 | +5.0, -5.0 % | -0.5, +1.0 %"
    assert row == f"| equal pair, unmanaged | {figures} |"


def test_jobs_that_make_other_numbers_of_iterations_are_another_kind() -> None:
    one = replace(EQUAL, iterations=(30, 10))
    run = replace(PLAYED, scenario=one, iterations=(30, 10), took_us=([200_000.0], [220_000.0]))
    assert Repeated((run,)).live == (Times(200, 200), Times(220, 220))


def test_what_live_runs_leave_open_is_told_from_how_they_differ() -> None:
    calm, late = [200_000.0] * 99 + [300_000.0] * 3, [220_000.0] * 99 + [400_000.0] * 3
    mean, tail = standard_errors_pct([calm, late])
    assert mean == pytest.approx(100 * (22.35 / 2) / 214.12, abs=0.01)
    assert 5 < tail < 15, "the 99th percentile of two draws is 300 ms in a quarter of all, else 400"
    steady = [200_000.0] * 100
    assert standard_errors_pct([steady, steady]) == (0, 0)


def test_two_runs_that_agree_by_chance_leave_the_99th_percentile_open() -> None:
    """One slow iteration in each run: there might have been none, or two."""
    run = [200_000.0] * 32 + [230_000.0]
    mean, tail = standard_errors_pct([run, run])
    assert mean == 0
    assert 3 < tail < 9, "230 ms in 86 of 100 draws, else 200"


def test_a_scenario_is_played_until_its_times_are_known() -> None:
    def runs(*means_us: float) -> list[Played]:
        return [replace(PLAYED, took_us=([mean_us], [mean_us])) for mean_us in means_us]

    def more(*means_us: float, passed_s: float = 0, mode: Mode = MANAGED) -> bool:
        return wants_more(mode, runs(*means_us), quick=False, passed_s=passed_s)

    assert more(passed_s=2 * LIVE_S)
    assert more(200_000, passed_s=2 * LIVE_S), "twice in any case"
    assert not more(200_000, 201_000)
    assert more(200_000, 201_000, mode=EQUAL.mode), "without management two may agree by chance"
    assert not more(*[200_000] * RUNS_FREE, mode=EQUAL.mode)
    assert more(200_000, 220_000)
    assert not more(200_000, 220_000, passed_s=LIVE_S)
    assert not more(*[200_000, 260_000] * RUNS_MOST)
    calm, late = [200_000.0] * 98, [199_000.0] * 96 + [224_000.0] * 2
    tails = [replace(PLAYED, took_us=(took, took)) for took in (calm, late)]
    assert wants_more(MANAGED, tails, quick=False, passed_s=0), "one mean, two 99th percentiles"
    assert not wants_more(MANAGED, [tails[1]] * 2, quick=False, passed_s=0), "of one 99th percentile"
    assert wants_more(EQUAL.mode, [], quick=True, passed_s=0)
    assert not wants_more(EQUAL.mode, runs(200_000), quick=True, passed_s=0)


def as_measured(found: tuple[Times, ...]) -> tuple[list[float], ...]:
    """Iterations with these means."""
    return tuple([1000 * one.mean_ms] for one in found)


def test_the_time_goes_to_the_scenario_that_is_known_least() -> None:
    def runs(*means_us: float) -> list[Played]:
        return [replace(PLAYED, took_us=([mean_us], [mean_us])) for mean_us in means_us]

    free = EQUAL.mode
    modes = [free, MANAGED, free]
    known, vague, vaguest = (
        runs(*[200_000] * RUNS_FREE),
        runs(200_000, 220_000),
        runs(*[180_000, 220_000] * 2),
    )

    def chosen(*played: list[Played], passed_s: float = 0) -> int | None:
        return next_scenario(modes, played, quick=False, passed_s=passed_s)

    assert chosen([], [], []) == 0
    assert chosen(vaguest, vague, []) == 2, "each is played as often as at least first"
    assert chosen(known, vague, vaguest) == 2
    assert chosen(vaguest, vague, known) == 0
    assert chosen(known, vague, known) == 1
    assert chosen(known, runs(200_000, 200_000), known) is None
    assert chosen(vaguest, vague, vaguest, passed_s=LIVE_S) is None
    assert chosen(vaguest, vague, [], passed_s=LIVE_S) == 2
    assert runs_at_once(free, 0, quick=False) == RUNS_FREE
    assert runs_at_once(MANAGED, 1, quick=False) == RUNS_MANAGED - 1
    assert runs_at_once(free, RUNS_FREE, quick=False) == ROUND
    assert runs_at_once(free, RUNS_MOST - 1, quick=False) == 1
    assert runs_at_once(free, 0, quick=True) == 1


def test_it_is_counted_which_errors_are_larger_than_what_the_live_runs_leave_open() -> None:
    def made(*means_us: float) -> Repeated:
        return Repeated(tuple(replace(PLAYED, took_us=([one], [one])) for one in means_us))

    found = {"fair": (Times(1, 1),), "as measured": (Times(206, 210),)}
    known = [Predicted(made(198_000, 202_000), found), Predicted(made(190_000, 210_000), found)]
    assert beyond_open(known, 0) == (1, 2), (
        "3 % are three standard errors of one, and less than one of the other"
    )
    assert beyond_open([*known, Predicted(made(200_000), found)], 0) == (1, 2), (
        "a single run says nothing of that"
    )
