"""The plan as desired state: what follows from a new alignment, over plain data."""

from __future__ import annotations

from rm.core.model.network.alignment import Alignment, LinkAlignment, Schedule
from rm.policies.regulate.controller import ControllerOptions, Report
from rm.policies.regulate.desired import Desired, Learn, Order, Tell
from rm.policies.regulate.iterating import Iterating
from tests import builders

PERIOD_US = 100_000


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
