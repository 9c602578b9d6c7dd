"""The plan as desired state: what follows from a new alignment, over plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rm.core.model.network.alignment import Alignment, LinkAlignment, Schedule
from rm.policies.regulate.controller import ControllerOptions, Inspect, Report
from rm.policies.regulate.desired import Desired, Learn, Order, Tell
from rm.policies.regulate.iterating import Iterating
from rm.protocol.attempts import Grid
from tests import builders

PERIOD_US = 100_000


WAITS: list[dict[str, Any]] = [{"gate": True}, {"inject_us": 1_000}, {"adjust": 0.5}]


def schedule(job: int, shift_us: int) -> Schedule:
    return Schedule(
        job, 1, shift_us=shift_us, period_us=PERIOD_US, base_period_us=PERIOD_US, reference=job == 1,
        high=job == 1,
    )  # fmt: skip


def link(host: str, *jobs: int) -> LinkAlignment:
    return LinkAlignment(host, 100.0, PERIOD_US, jobs)


def paused(orders: list[Order]) -> set[int]:
    return {order.job for order in orders if isinstance(order, Tell) and order.pause}


def slowed(desired: Desired, job: int) -> set[int]:
    """The jobs that are moved when this one becomes slow, half an iteration behind its place."""
    found: set[int] = set()
    for one in (1, 2, 3):
        found |= paused(desired.report(1, Report(one, one * 10_000, PERIOD_US)))
    for n in range(8):
        found |= paused(desired.report(1, Report(job, 250_000 + n * 150_000, 150_000)))
    return found


def test_a_slow_job_moves_those_that_share_its_links_by_the_newest_plan() -> None:
    """Also if its links stood in another place of the plan before, or were none of it."""
    running = {job: Iterating(1, 60_000, None, PERIOD_US, job == 1, None) for job in (1, 2, 3)}
    schedules = tuple(schedule(job, 10_000 * job) for job in running)
    moved = tuple(schedule(job, 20_000 * job) for job in running)
    desired = Desired(ControllerOptions())
    desired.aligned(Alignment(100.0, (link("a", 1, 2), link("b", 1, 3)), schedules), running)
    assert slowed(desired, 3) == {3}
    desired.aligned(Alignment(100.0, (link("x", 8, 9), link("y", 7, 9), link("a", 1, 2, 3)), moved), running)
    assert slowed(desired, 3) == {2, 3}


def followed() -> Desired:
    """Three jobs in their first attempts, of which the first is the reference."""
    running = {job: Iterating(1, 60_000, None, PERIOD_US, job == 1, None) for job in (1, 2, 3)}
    schedules = tuple(schedule(job, 10_000 * job) for job in running)
    desired = Desired(ControllerOptions())
    desired.aligned(Alignment(100.0, (link("a", 1, 2, 3),), schedules), running)
    return desired


def test_from_reports_of_other_attempts_and_jobs_nothing_follows() -> None:
    desired = followed()
    assert not desired.report(2, Report(1, 10_000, PERIOD_US))
    assert not desired.report(1, Report(9, 10_000, PERIOD_US))
    assert desired.slot(1) is None, "the reference was not heard yet"
    desired.report(1, Report(1, 10_000, PERIOD_US))
    assert desired.slot(1) is not None


def test_from_profiles_of_other_attempts_and_jobs_nothing_is_learnt() -> None:
    desired = followed()
    old, new = builders.profile(100, (0, 40, 1_000)), builders.profile(80, (0, 40, 1_000))
    assert not desired.profiled(1, 2, old, new)
    assert not desired.profiled(9, 1, old, new)
    assert desired.profiled(1, 1, old, new) == [Learn(1, 1, new)]


def pair(period_us: int = PERIOD_US, **low: Any) -> Alignment:
    """Job 1 is the reference; the other one keeps its place as `low` says."""
    one, other = (
        replace(schedule(job, job * 10_000), period_us=period_us, base_period_us=period_us) for job in (1, 2)
    )
    return Alignment(100.0, (link("a", 1, 2),), (one, replace(other, **low)))


def told_of_pair(low: dict[str, Any]) -> tuple[Desired, dict[int, Iterating]]:
    """Its hosts have heard of the plan."""
    running = {job: Iterating(1, 60_000, None, PERIOD_US, job == 1, None) for job in (1, 2)}
    desired = Desired(ControllerOptions())
    desired.aligned(pair(**low), running)
    desired.report(1, Report(1, 10_000, PERIOD_US))
    return desired, running


@pytest.mark.parametrize("before", WAITS)
@pytest.mark.parametrize("after", WAITS)
def test_a_job_that_waits_for_slots_keeps_its_old_ones_until_the_new_are_known(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    desired, running = told_of_pair(before)
    told = desired.told(2)
    assert told is not None
    assert told.grid is not None
    assert desired.aligned(pair(shift_us=50_000, **after), running) == []
    assert desired.told(2) == told


@pytest.mark.parametrize("before", WAITS)
def test_slots_that_are_none_of_the_new_plan_are_taken_away_at_once(before: dict[str, Any]) -> None:
    """Those of a job that waits for none any more, and those of another period."""
    for plan in (pair(shift_us=50_000), pair(PERIOD_US - 10_000, **before)):
        desired, running = told_of_pair(before)
        assert desired.aligned(plan, running) == [Tell(2, 1, Grid())]


@pytest.mark.parametrize("after", [{}, *WAITS])
def test_a_pause_of_the_plan_before_is_not_made_under_the_next(after: dict[str, Any]) -> None:
    desired, running = told_of_pair({})
    for n in range(8):
        desired.report(1, Report(2, 250_000 + n * 150_000, 150_000))
    told = desired.told(2)
    assert told is not None
    assert told.grid is not None
    assert told.grid.pause_length_us
    plan = pair(shift_us=50_000, **after)
    assert desired.aligned(plan, running) == [Tell(2, 1, Grid(pause_seq=told.grid.pause_seq))]


def test_the_plan_that_follows_a_changed_profile_begins_anew_also_if_it_is_the_same() -> None:
    desired, running = told_of_pair({})
    desired.aligned(pair(), running)
    assert desired.slot(1) is not None
    desired.profiled(2, 1, builders.profile(100, (0, 40, 1_000)), builders.profile(80, (0, 40, 1_000)))
    desired.aligned(pair(), running)
    assert desired.slot(1) is None, "its reference is heard anew"


def test_a_job_that_does_not_run_has_no_part_in_the_plan() -> None:
    desired, running = told_of_pair({"gate": True})
    assert desired.aligned(pair(gate=True), {1: running[1]}) == []
    assert desired.slot(1) is None, "the plan of those that run begins anew"
    assert desired.told(2) is None


def test_a_job_that_leaves_the_plan_loses_its_grid_unless_that_attempt_is_over() -> None:
    for attempt, orders in ((1, [Tell(2, 1, None)]), (2, [])):
        desired, running = told_of_pair({"gate": True})
        again = {1: running[1], 2: replace(running[2], attempt=attempt)}
        alone = Alignment(100.0, (), (pair().schedules[0],))
        assert desired.aligned(alone, again) == orders


def inspected(desired: Desired, first: int) -> list[tuple[int, ...]]:
    """Which jobs are to be measured when job 2 is slow in 40 iterations from this one on."""
    orders: list[Order] = []
    for n in range(first, first + 40):
        orders += desired.report(1, Report(1, (n + 1) * PERIOD_US, PERIOD_US))
        orders += desired.report(1, Report(2, 20_000 + n * 150_000, 150_000))
    return [order.jobs for order in orders if isinstance(order, Inspect)]


def test_the_plan_comes_back_when_all_that_are_inspected_are_as_they_were() -> None:
    """Each may be told of before the other. Until then nobody is measured again."""
    same = builders.profile(100, (0, 40, 1_000))
    for first, last in ((1, 2), (2, 1)):
        desired, _ = told_of_pair({})
        assert inspected(desired, 0) == [(1, 2)]
        desired.profiled(first, 1, same, None)
        assert inspected(desired, 40) == []
        desired.profiled(last, 1, same, same)
        assert inspected(desired, 80) == [(1, 2)]


def test_a_profile_that_nobody_asked_for_changes_nothing_where_it_is_the_same() -> None:
    desired, running = told_of_pair({})
    same = builders.profile(100, (0, 40, 1_000))
    assert desired.profiled(2, 1, same, same) == []
    alone = Alignment(100.0, (), (pair().schedules[0],))
    desired.aligned(alone, running)
    assert desired.profiled(2, 1, same, same) == []
    assert desired.slot(1) is None


def test_a_new_attempt_has_no_grid_of_the_one_before_nor_has_a_job_that_comes_back() -> None:
    desired, running = told_of_pair({"gate": True})
    again = {1: running[1], 2: replace(running[2], attempt=2)}
    assert desired.aligned(pair(shift_us=50_000), again) == []
    desired, running = told_of_pair({"gate": True})
    desired.aligned(Alignment(100.0, (), (pair().schedules[0],)), running)
    assert desired.aligned(pair(shift_us=50_000), running) == []


def test_a_plan_whose_reference_is_known_takes_no_pause_of_the_one_before() -> None:
    desired, running = told_of_pair({})
    for n in range(8):
        desired.report(1, Report(2, 250_000 + n * 150_000, 150_000))
    before = desired.told(2)
    assert before is not None
    assert before.grid is not None
    assert before.grid.pause_length_us
    again = {1: replace(running[1], next_start_us=2_000_000), 2: running[2]}
    told = [o for o in desired.aligned(pair(shift_us=50_000, gate=True), again) if isinstance(o, Tell)]
    assert [(one.job, one.pause) for one in told] == [(2, False)]
    assert told[0].grid is not None
    assert (told[0].grid.pause_length_us, told[0].grid.gate) == (0, True)
