"""Delays and throttling rates on logical links."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.network.fabric import Fabric
from rm.errors import UsageError
from rm.policies.foresight import JobDemand, Links, Piece, Profile, schedule
from rm.policies.foresight.occupancy import Occupancy
from rm.policies.foresight.patterns import LogicalLink
from tests.examples import examples
from tests.unit.foresight.demands import UPLINK, demand, links, parallel

SETTINGS = settings(max_examples=examples(150))
RATES = (Fraction(1), Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))


def delays(jobs: Sequence[JobDemand], where: Links) -> dict[int, list[int]]:
    plan = schedule(jobs, where, "timing")
    return {job: [i.delay_us for i in planned] for job, planned in plan.iterations.items()}


def test_the_second_of_two_equal_jobs_waits_once() -> None:
    jobs = [demand(j, 4, [(2, 4)], parallel(1), iterations=3) for j in (1, 2)]
    assert delays(jobs, links(1)) == {1: [0, 0, 0], 2: [2, 0, 0]}


def test_unequal_periods_need_a_delay_before_almost_every_iteration() -> None:
    jobs = [
        demand(1, 4, [(2, 4)], parallel(1), iterations=4),
        demand(2, 6, [(3, 6)], parallel(1), iterations=3),
    ]
    assert delays(jobs, links(1)) == {1: [0, 1, 2, 0], 2: [1, 0, 3]}


def test_two_narrow_jobs_go_together_and_a_wide_one_goes_between_them() -> None:
    jobs = [
        demand(1, 4, [(2, 4)], parallel(1), iterations=2),
        demand(2, 4, [(2, 4)], parallel(1, first=1), iterations=2),
        demand(3, 4, [(2, 4)], parallel(2, first=2), iterations=2),
    ]
    assert delays(jobs, links(2)) == {1: [0, 0], 2: [0, 0], 3: [2, 0]}


def test_jobs_that_share_no_direction_of_no_rack_do_not_wait() -> None:
    out, back = demand(1, 4, [(0, 4)], [("a0", "b0")]), demand(2, 4, [(0, 4)], [("b1", "a1")])
    inside = demand(3, 4, [(0, 4)], [("a2", "a3")])
    assert delays([out, back, inside], links(1)) == {1: [0], 2: [0], 3: [0]}


def test_throttling_is_chosen_only_where_it_ends_earlier() -> None:
    """Beside a job at half a link: at half the rate 8 + 4 ticks, after it 16 + 4, together never."""
    first = demand(1, 20, [(0, 20)], parallel(1), rate=UPLINK // 2)
    second = demand(2, 8, [(0, 4)], parallel(1, first=1), throttles=RATES)
    planned = schedule([first, second], links(1, units=4), "timing").iterations[2][0]
    assert (planned.delay_us, planned.throttle, planned.length_us) == (0, 0.5, 12)
    short = demand(1, 20, [(0, 3)], parallel(1), rate=UPLINK // 2)
    planned = schedule([short, second], links(1, units=4), "timing").iterations[2][0]
    assert (planned.delay_us, planned.throttle, planned.length_us) == (3, 1.0, 8)


def test_a_job_whose_rounded_rates_do_not_fit_is_slowed_down_even_alone() -> None:
    """Three flows of two thirds are two links' worth, but not in whole links or halves."""
    job = demand(1, 12, [(0, 6)], parallel(3), rate=2 * UPLINK // 3, throttles=(Fraction(1), Fraction(1, 2)))
    assert schedule([job], links(2, units=3)).iterations[1][0].throttle == 1.0
    half = schedule([job], links(2, units=2))
    assert half.iterations[1][0].throttle == 0.5
    assert half.contention_free


def test_a_job_that_fits_at_no_rate_gets_its_links_for_itself() -> None:
    wide = demand(1, 10, [(0, 5)], parallel(3))
    other = demand(2, 10, [(0, 5)], parallel(1, first=4))
    plan = schedule([wide, other], links(2), "full")
    assert not plan.contention_free
    assert [plan.iterations[j][0].delay_us for j in (1, 2)] == [0, 5]


def test_without_a_fabric_the_links_of_shared_hosts_are_timed() -> None:
    where = Links(None, host_bps={"a0": UPLINK, "b0": UPLINK})
    jobs = [demand(j, 4, [(2, 4)], [("a0", "b0"), ("b0", "a0")], iterations=2) for j in (1, 2)]
    plan = schedule(jobs, where)
    assert {j: [i.delay_us for i in p] for j, p in plan.iterations.items()} == {1: [0, 0], 2: [2, 0]}
    assert plan.contention_free


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: JobDemand(1, (), 1, ()),
        lambda: JobDemand(1, (), 1, (Profile(0, ()),)),
        lambda: JobDemand(1, (("a0", "b0"),), 1, (Profile(4, (Piece(0, 2, 5, 1),)),)),
        lambda: JobDemand(1, (("a0", "b0"),), 1, (Profile(4, (Piece(1, 2, 4, 1),)),)),
        lambda: Links(None, 0),
        lambda: Links(Fabric({}, 0, 1)),
        lambda: schedule([], links(1), "fastest"),
        lambda: schedule([demand(1, 4, [], []), demand(1, 4, [], [])], links(1)),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=r"\.$"):
        wrong()


# -- against brute force ------------------------------------------------------------------------

spans = st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 3))


@SETTINGS
@given(
    reserved=st.lists(spans, max_size=8),
    wanted=st.lists(spans, min_size=1, max_size=3),
    ready=st.integers(0, 10),
)
def test_the_least_delay_is_the_least_that_fits(reserved, wanted, ready) -> None:  # type: ignore[no-untyped-def]
    link, room = LogicalLink("a", True), 4
    level = [0] * 200
    occupancy = Occupancy(lambda _: room)
    for start, lasts, load in reserved:
        if all(level[t] + load <= room for t in range(start, start + lasts)):
            occupancy.reserve([(link, start, start + lasts, load)])
            for t in range(start, start + lasts):
                level[t] += load
    loads = [(link, start, start + lasts, load) for start, lasts, load in wanted]
    fitting = (
        shift
        for shift in range(ready, 150)
        if all(level[t + shift] + load <= room for _, a, b, load in loads for t in range(a, b))
    )
    assert occupancy.least_start(loads, ready) == next(fitting)
