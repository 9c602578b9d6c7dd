"""What iterations take on a link that nobody manages: the estimate against playing it tick by tick; of many
jobs against playing them by events."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.policies.interleave.circle import LinkLoad
from rm.policies.interleave.mean_value import mean_periods
from rm.policies.interleave.profile import Phases
from rm.policies.interleave.unmanaged import PLAYED_MOST, played, unmanaged_periods
from tests.examples import examples

CAPACITY = 12
GRID = 6  # starts of each job, evenly over its period
TICK = 0.25
FROM, UNTIL = 2, 8  # the iterations of a job that count


@st.composite
def jobs(draw: st.DrawFn, most: int = 3) -> dict[int, tuple[int, Phases]]:
    """(period, phases) by job: one or two phases, at the link's full rate or part of it."""
    found: dict[int, tuple[int, Phases]] = {}
    for job in range(1, draw(st.integers(1, most)) + 1):
        period, phases, at = draw(st.integers(30, 60)), [], 0
        for _ in range(draw(st.integers(1, 2))):
            at += draw(st.integers(0, period // 3))
            length = draw(st.integers(1, max(1, period // 4)))
            if at + length <= period:
                phases.append((at, length, draw(st.integers(1, CAPACITY))))
            at += length + 1
        found[job] = period, tuple(phases) or ((0, 1, CAPACITY),)
    return found


def estimate(found: Mapping[int, tuple[int, Phases]]) -> dict[int, int]:
    """In thousandths of a tick."""
    load = LinkLoad(
        CAPACITY, {job: tuple((o * 1000, d * 1000, r) for o, d, r in one[1]) for job, one in found.items()}
    )
    return unmanaged_periods(load, {job: period * 1000 for job, (period, _) in found.items()})


def fair(wanted: Sequence[float]) -> list[float]:
    """Everybody gets the same, and what somebody does not want is for the others."""
    got, left, open_ = [0.0] * len(wanted), float(CAPACITY), [i for i, one in enumerate(wanted) if one]
    while open_:
        share = left / len(open_)
        content = [i for i in open_ if wanted[i] <= share]
        for i in content or open_:
            got[i] = min(wanted[i], share)
            left -= got[i]
        open_ = [i for i in open_ if i not in content] if content else []
    return got


def walked(jobs: Sequence[tuple[int, Phases]], starts: Sequence[float]) -> list[float]:
    """The mean iteration of each job, ticks; what is done is looked at every `TICK`."""
    stages: list[list[tuple[float, int]]] = []
    for period, phases in jobs:
        mine, ended = [], 0
        for offset, length, rate in phases:
            mine += [(float(offset - ended), 0), (float(length * rate), rate)]
            ended = offset + length
        stages.append([*mine, (float(period - ended), 0)])
    at, left, now = [0] * len(jobs), [s[0][0] + start for s, start in zip(stages, starts, strict=True)], 0.0
    ends: list[list[float]] = [[] for _ in jobs]
    while min(map(len, ends)) < UNTIL:
        got = fair([stages[job][at[job]][1] for job in range(len(jobs))])
        now += TICK
        for job, mine in enumerate(stages):
            speed = got[job] if mine[at[job]][1] else 1.0
            left[job] -= TICK * speed
            while left[job] <= 0:
                early = -left[job] / speed  # before now, and so much of the next one is done
                at[job] += 1
                if at[job] == len(mine):
                    at[job] = 0
                    ends[job].append(now - early)
                amount, rate = mine[at[job]]
                speed = rate or 1.0
                left[job] = amount - early * speed
    return [(one[-1] - one[FROM - 1]) / (len(one) - FROM) for one in ends]


@settings(max_examples=examples(30), deadline=None)
@given(jobs())
def test_the_estimate_is_what_playing_it_from_all_starts_gives(found: dict[int, tuple[int, Phases]]) -> None:
    periods = [period for period, _ in found.values()]
    grids = [[period * part / GRID for part in range(GRID)] for period in periods[1:]]
    played = [walked([*found.values()], (0.0, *starts)) for starts in itertools.product(*grids)]
    ours = estimate(found)
    for job, means in zip(found, zip(*played, strict=True), strict=True):
        alone, truth = found[job][0], fmean(means)
        assert ours[job] / 1000 == pytest.approx(truth, abs=0.03 * alone + 0.2 * (truth - alone))


@settings(max_examples=examples(100), deadline=None)
@given(jobs(most=6))
def test_nobody_is_faster_than_alone_and_the_link_carries_no_more_than_it_can(
    found: dict[int, tuple[int, Phases]],
) -> None:
    ours = estimate(found)
    used = 0.0
    for job, (period, phases) in found.items():
        assert ours[job] >= 1000 * period
        used += sum(length * rate for _, length, rate in phases) / (ours[job] / 1000)
    assert used <= 1.05 * CAPACITY
    if sum(max(rate for _, _, rate in phases) for _, phases in found.values()) <= CAPACITY:
        assert ours == {job: 1000 * period for job, (period, _) in found.items()}


def test_two_equal_jobs_lose_what_their_phases_meet_by_chance() -> None:
    """d^2 of the period: for every instant at which the other may begin, both wait for what overlaps."""
    found = estimate({1: (100, ((0, 45, CAPACITY),)), 2: (100, ((50, 45, CAPACITY),))})
    assert found == {job: pytest.approx(100_000 * (1 + 0.45**2), rel=0.005) for job in (1, 2)}


def test_three_equal_jobs_meet_as_if_they_began_anywhere() -> None:
    """Not only two of them at a time: as of all starts on a grid."""
    found = estimate(dict.fromkeys((1, 2, 3), (100, ((0, 30, CAPACITY),))))
    grid = [(0.0, 100 * (a + 0.5) / 12, 100 * (b + 0.25) / 12) for a in range(12) for b in range(12)]
    truth = fmean(fmean(walked([(100, ((0, 30, CAPACITY),))] * 3, starts)) for starts in grid)
    assert fmean(found.values()) / 1000 == pytest.approx(truth, rel=0.015)


def test_a_job_without_others_takes_its_period() -> None:
    assert estimate({7: (50, ((10, 40, CAPACITY),))}) == {7: 50_000}


@settings(max_examples=examples(20), deadline=None)
@given(
    st.integers(10, 24),
    st.sampled_from([0.3, 0.6, 0.9, 1.2]),
    st.sampled_from([4, CAPACITY]),
    st.data(),
)
def test_mean_values_say_of_many_jobs_what_playing_them_says(
    count: int, fill: float, rate: int, data: st.DataObject
) -> None:
    """`fill`: of the link's time, if each sent alone; `rate`: what a job takes of the link at most."""
    periods = [data.draw(st.sampled_from([100_000, 150_000, 163_000, 200_000])) for _ in range(count)]
    many = [(one, ((0, int(one * fill * CAPACITY / count / rate), rate),)) for one in sorted(periods)]
    many = [(one, ((0, min(phases[0][1], one), rate),)) for one, phases in many]
    ours, theirs = (
        fmean(one / period - 1 for one, (period, _) in zip(found, many, strict=True))
        for found in (mean_periods(many, CAPACITY), played(tuple(many), CAPACITY))
    )
    assert ours == pytest.approx(theirs, abs=0.005 + 0.25 * theirs)


def test_of_a_crowd_the_estimate_goes_on_where_playing_ends() -> None:
    """One job more changes little, though it is another method; and 400 jobs are no matter."""
    found = [
        estimate(dict.fromkeys(range(count), (1_000, ((0, 900 // count, CAPACITY),))))
        for count in (PLAYED_MOST, PLAYED_MOST + 1, 400)
    ]
    few, more, many = (fmean(one.values()) / 1_000_000 for one in found)
    assert 1.12 < few < 1.17
    assert more == pytest.approx(few, abs=0.02)
    assert 1 < many < more
    assert len(found[2]) == 400


def test_a_crowd_with_more_than_fits_is_as_slow_as_the_link() -> None:
    found = estimate(dict.fromkeys(range(50), (1_000, ((0, 40, CAPACITY),))))
    assert list(found.values()) == [pytest.approx(2_000_000, rel=0.03)] * 50


def test_paces_that_are_far_apart_are_not_played() -> None:
    """The slow job sends for half of its time, in which the fast one's phases take twice as long."""
    found = estimate({1: (10, ((0, 5, CAPACITY),)), 2: (1_000_000, ((0, 500_000, CAPACITY),))})
    assert 11_000 < found[1] < 15_000
    assert 1_100_000_000 < found[2] < 1_500_000_000
