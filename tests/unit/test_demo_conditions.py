"""What a paper's demo says of its own live figures."""

import pytest

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.demo.papers.conditions import Conditions, Row, computing_waited, exchange_waited, gain, judged
from rm.demo.scenario import Training
from rm.demo.training import Iteration, JobRun

QUIET = (Conditions("none", 0.7, 0.01), Conditions("cassini", 0.6, 0.01))
BUSY = (Conditions("none", 0.7, 0.01), Conditions("cassini", 0.02, 0.03))


def rows(unmanaged: float, managed: float, live_unmanaged: float, live_managed: float) -> list[Row]:
    """Of two jobs, the slower one with these times of 100 ms alone."""
    return [
        Row(way, job, "h[1-2]", 100, live_ms + faster, simulated_ms + faster)
        for way, live_ms, simulated_ms in (
            ("none", live_unmanaged, unmanaged),
            ("cassini", live_managed, managed),
        )
        for job, faster in (("one", 0), ("two", -1))
    ]


def test_figures_that_show_the_idea_are_shown_as_they_are() -> None:
    found = rows(120, 100, 115, 102)
    assert gain(found, "cassini", live=False) == pytest.approx(0.2)
    assert gain(found, "cassini", live=True) == pytest.approx(0.13)
    assert judged(found, QUIET) == judged(found, BUSY) == ""


def test_a_busy_machine_is_named_where_the_idea_does_not_show() -> None:
    assert judged(rows(120, 100, 106, 107), BUSY) == (
        "The live figures show less than half of what is simulated: in the way cassini the slowest job is "
        "slower by 1 %, simulated faster by 20 %. This machine was busy: its processors were idle for 2 % of "
        "the time, and jobs waited for one for 3.0 % of an iteration. Play it again when it has less to do."
    )


def test_no_way_hides_behind_one_that_shows_its_gain() -> None:
    between = [Row("admitted", job, "h[1-2]", 100, 121, 100) for job in ("one", "two")]
    first, last = rows(120, 100, 119, 101)[:2], rows(120, 100, 119, 101)[2:]
    assert judged([*first, *last], QUIET) == ""
    assert "in the way admitted the slowest job is slower by 2 %, simulated faster by 20 %" in judged(
        [*first, *between, *last], QUIET
    )


def test_a_busy_machine_is_named_where_all_takes_longer() -> None:
    slow = rows(120, 100, 138, 117)
    assert judged(slow, QUIET) == ""
    assert judged(slow, BUSY).startswith(
        "Live iterations took 18 % of one alone longer than simulated: this machine was busy, its processors "
    )


def test_a_quiet_machine_is_not_blamed() -> None:
    told = judged(rows(120, 100, 103, 102), QUIET)
    assert "simulated faster by 20 %. That is not other work on this machine" in told
    assert told.endswith("may stay so by chance. Play it again.")


def test_waits_as_long_as_the_gain_hide_it_also_where_it_seems_to_be_there() -> None:
    assert judged(rows(105, 100, 105, 100), BUSY).startswith("The live figures say little: this machine was")


def test_what_gains_nothing_by_its_simulation_is_not_judged_by_it() -> None:
    for managed in (100, 101):
        assert judged(rows(100, managed, 103, 104), QUIET) == ""


def test_waits_are_what_computing_and_exchanges_took_longer() -> None:
    """Of 200 ms: 115 and 125 of 110 ms computing; exchanges of 80 and 90 ms. The first one is not counted."""
    training = Training("one", "low", 110.0, 1_000_000)
    opening = Iteration(0, 900_000, 0, 400_000)
    run = JobRun(
        training,
        1,
        iterations=[opening, Iteration(0, 205_000, 10_000, 80_000), Iteration(0, 215_000, 0, 90_000)],
    )
    profile = TrafficProfile(200_000, (Phase(110_000, 90_000, 100_000_000),))
    assert computing_waited([run], {"one": profile}) == pytest.approx(10 / 200)
    assert exchange_waited(run.iterations) == pytest.approx(5 / 210)
