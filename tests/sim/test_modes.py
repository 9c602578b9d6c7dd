"""What the defaults cost beside no management: corners of the grid of `python -m bench modes`."""

import pytest

from bench import several_links
from bench.modes import DEFAULT, LINK_BPS, NOISE_PCT, UNMANAGED, Case, mean, play
from bench.never_worse import compare, drawn
from rm.core.model.asked.traffic import on_off
from rm.policies.comm.steps.burst_loss import burst_loss
from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.unify import Demand
from tests.examples import some

ONE_PRIORITY = [
    Case(2, 0.9, 0.01, "equal", False),
    Case(2, 1.1, 0.01, "near", False),
    Case(2, 1.3, 0.01, "unlike", False),
    Case(2, 1.0, 0.04, "parts", False),
    Case(2, 0.95, 0.1, "parts", False),
    Case(3, 0.9, 0.04, "parts", False),
    Case(4, 0.9, 0.01, "equal", False),
    Case(4, 0.5, 0.01, "rising", False),
    Case(3, 0.75, 0.01, "unlike", False),
    Case(3, 0.9, 0.0, "rising", False),
    Case(6, 0.97, 0.01, "rising", False),
    Case(6, 0.9, 0.01, "near", False),
    Case(6, 1.3, 0.0, "unlike", False),
]
FIRST_HIGH = [
    Case(2, 0.9, 0.01, "equal", True),
    Case(3, 0.9, 0.01, "rising", True),
    Case(4, 0.75, 0.01, "unlike", True),
    Case(4, 1.3, 0.01, "equal", True),
    Case(6, 0.9, 0.01, "equal", True),
]


def name(case: Case) -> str:
    return f"{case.jobs}-{case.fill}-{case.jitter}-{case.periods}"


@pytest.mark.parametrize("case", some(list(drawn(12))), ids=name)
def test_the_slowest_job_is_no_slower_than_unmanaged_anywhere_in_the_grid(case: Case) -> None:
    """The first of the cases of `python -m bench never_worse`."""
    found = compare(case)
    assert found.slower <= NOISE_PCT
    assert found.managed.mean <= found.unmanaged.mean + NOISE_PCT


@pytest.mark.parametrize("case", some(ONE_PRIORITY), ids=name)
def test_no_job_of_one_priority_is_slower_than_unmanaged(case: Case) -> None:
    managed, unmanaged = play(case, DEFAULT, 1), play(case, UNMANAGED, 1)
    assert managed.slowest <= unmanaged.slowest + NOISE_PCT
    assert managed.mean <= unmanaged.mean + NOISE_PCT


@pytest.mark.parametrize("case", some(FIRST_HIGH), ids=name)
def test_a_high_job_loses_nothing_and_the_slowest_no_more_than_under_strict_ranks(case: Case) -> None:
    managed = play(case, DEFAULT, 1)
    assert managed.first <= 1 < play(case, UNMANAGED, 1).first
    for other in ("classes alone", "both"):
        assert managed.slowest <= play(case, other, 1).slowest + NOISE_PCT


@pytest.mark.parametrize("jobs", [4, 6])
def test_on_a_full_link_of_one_priority_gates_lose_least(jobs: int) -> None:
    case = Case(jobs, 0.9, 0.01, "equal", False)
    managed = play(case, DEFAULT, 1)
    for other in (UNMANAGED, "classes alone", "both"):
        assert managed.slowest < play(case, other, 1).slowest


def test_low_jobs_share_behind_a_high_one_where_ranks_would_starve_the_last() -> None:
    case = Case(3, 1.3, 0.01, "equal", True)
    managed, ranked = play(case, DEFAULT, 1), play(case, "classes alone", 1)
    assert managed.first <= 1
    assert managed.slowest < ranked.slowest / 2


@pytest.mark.parametrize("jitter", [0.01, 0.04])
@pytest.mark.parametrize("jobs", [2, 4])
def test_first_come_keeps_equal_jobs_apart(jobs: int, jitter: float) -> None:
    """Whoever has begun keeps the link: those who wait fall in behind, at any jitter."""
    case = Case(jobs, 0.9, jitter, "equal", False)
    ordered, unmanaged = play(case, "first come", 1), play(case, UNMANAGED, 1)
    assert ordered.slowest <= NOISE_PCT
    assert ordered.slowest < unmanaged.slowest / 3


@pytest.mark.parametrize(
    "case",
    [
        Case(2, 0.9, 0.0, "parts", False),
        Case(3, 1.1, 0.0, "equal", False),
        Case(3, 0.9, 0.0, "rising", True),
        Case(6, 0.75, 0.0, "near", False),
        Case(6, 1.3, 0.0, "equal", True),
    ],
    ids=name,
)
def test_what_first_come_costs_is_known_before(case: Case) -> None:
    shares = [round(case.period_us(n) * case.fill / case.jobs) for n in range(case.jobs)]
    phases = {n: ((case.period_us(n) - share, share, LINK_BPS),) for n, share in enumerate(shares)}
    demands = {n: Demand(n, case.period_us(n), phases[n], (n,)) for n in phases}
    predicted = burst_loss(LinkLoad(LINK_BPS, phases), demands, {0} if case.high else ())
    assert abs(100 * predicted - play(case, "first come", 1).slowest) <= NOISE_PCT


def test_an_order_that_the_first_late_burst_ends_is_known_before() -> None:
    """Two jobs that fill a link, one with half the period: exact ones stay in an order for ever."""
    phases = {0: ((100_000, 100_000, LINK_BPS),), 1: ((50_000, 50_000, LINK_BPS),)}
    demands = {n: Demand(n, period, phases[n], (n,)) for n, period in enumerate((200_000, 100_000))}
    link = LinkLoad(LINK_BPS, phases)
    assert burst_loss(link, demands, ()) < 0.3
    assert burst_loss(link, demands, (), varies=0.04) > 0.4
    case = Case(2, 1.0, 0.04, "parts", False)
    assert mean(play(case, "first come", seed) for seed in range(1, 5)).slowest > 40


def test_first_come_lets_high_jobs_pass() -> None:
    case = Case(4, 1.1, 0.01, "equal", True)
    assert play(case, "first come", 1).first <= 1 < play(case, UNMANAGED, 1).first


@pytest.mark.parametrize("duty", [0.45, 0.5])
def test_jobs_that_meet_another_on_each_of_their_links_are_no_slower_than_unmanaged(duty: float) -> None:
    """Three in a ring, which no rotation suits: by ranks the last would give way on both of its links."""
    one, two, three = several_links.HOSTS[:3]
    rings = [(one, two), (two, three), (one, three)]
    profile = on_off(200_000, duty, LINK_BPS)
    jobs = [several_links.job(n, on, profile, n * 150_000.0, 12e6) for n, on in enumerate(rings)]
    managed, unmanaged = several_links.compare(several_links.Case("ring", tuple(jobs), 0.03, 0))
    assert managed <= unmanaged + NOISE_PCT
