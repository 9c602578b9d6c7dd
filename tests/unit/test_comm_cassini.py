"""CASSINI's module: scores and time-shifts of its figures, loops, and what it leaves alone."""

import itertools
from collections.abc import Sequence

import pytest

from rm.core.model.network.alignment import NOTHING_TO_ALIGN, Alignment
from rm.core.model.reasons import ReasonCode
from rm.core.model.snapshot import PlacedJob
from rm.errors import ConfigError
from rm.policies.comm.cassini import Cassini, CassiniOptions
from tests.builders import host, placed, profile, snapshot

CLUSTER = snapshot(*(host(f"h{i}", nic_mbps=50_000) for i in range(9)))
Phase = tuple[float, float]  # (duration ms, rate Gbit/s)


def on_one_link(*jobs: tuple[float, Phase]) -> list[PlacedJob]:
    """Jobs that meet on the link of h0 only; each is (period ms, its phase)."""
    return [
        placed(i, "h0", f"h{i}", traffic=profile(period, (0, duration, rate * 1000)))
        for i, (period, (duration, rate)) in enumerate(jobs, 1)
    ]


def align(jobs: Sequence[PlacedJob], **options: object) -> Alignment:
    return Cassini(CassiniOptions(**options)).align(jobs, CLUSTER)  # type: ignore[arg-type]


def test_figure_5_turns_one_of_two_jobs_by_30_degrees() -> None:
    answer = align(on_one_link((40, (10, 50)), (60, (10, 50))))
    (link,) = answer.links
    assert (answer.score, link.score, link.perimeter_us) == (100, 100, 120_000)
    degrees = [360 * r.slots / r.circle_slots for r in link.rotations]
    assert degrees == [0, 30]
    assert [s.mul for s in answer.schedules] == [3, 2]


@pytest.mark.parametrize(
    ("jobs", "score", "shifts_ms"),
    [
        (((310, (138, 50)), (310, (148, 50))), 100, (0, 150.7)),
        (((314, (156, 42)), (314, (150, 42)), (105, (55, 8))), 100, (0, 157, 48)),
        (((268, (145, 40)), (268, (168, 40))), 89.2, (0, 96.8)),
        (((180, (120, 40)), (180, (120, 40))), 80, (0, 60)),
        (((250, (186, 35)), (250, (179, 35)), (250, (97, 45))), 60.6, (0, 34.7, 187.5)),
    ],
)
def test_the_snapshots_of_table_2(
    jobs: tuple[tuple[float, Phase], ...], score: float, shifts_ms: tuple[float, ...]
) -> None:
    """Scores and shifts are the paper's; the periods, durations and rates are guesses that fit them."""
    answer = align(on_one_link(*jobs))
    assert answer.score == pytest.approx(score, abs=0.05)
    assert answer.schedules[1].shift_us / 1000 == pytest.approx(shifts_ms[1], abs=0.2)
    if len(jobs) == 3 and score < 100:  # of the small job's many perfect rotations the paper took another
        assert answer.schedules[2].shift_us / 1000 == pytest.approx(shifts_ms[2], abs=0.1)


@pytest.mark.parametrize("degrees", [1, 5, 15])
def test_the_angle_is_an_option(degrees: float) -> None:
    answer = align(on_one_link((180, (60, 40)), (180, (60, 40))), angle_deg=degrees)
    assert answer.links[0].rotations[1].circle_slots == 360 / degrees
    assert answer.score == 100


def test_a_placement_scores_the_mean_of_its_links() -> None:
    jobs = [
        placed(1, "h0", "h1", traffic=profile(180, (0, 120, 40_000))),
        placed(2, "h0", "h2", traffic=profile(180, (0, 120, 40_000))),
        placed(3, "h2", "h3", traffic=profile(180, (0, 20, 40_000))),
    ]
    answer = align(jobs)
    assert [(link.link, link.score) for link in answer.links] == [("h0", 80), ("h2", 100)]
    assert answer.score == 90


def test_links_that_are_shared_without_contention_count_in_the_mean() -> None:
    jobs = [
        placed(1, "h0", "h1", traffic=profile(180, (0, 120, 20_000))),
        placed(2, "h0", "h2", traffic=profile(180, (0, 120, 30_000))),
    ]
    assert [link.score for link in align(jobs).links] == [100]
    assert align([jobs[0], placed(3, "h4", "h5", traffic=jobs[0].traffic)]) == NOTHING_TO_ALIGN


TRIANGLE = [
    placed(1, "h0", "h1", traffic=profile(200, (0, 60, 50_000))),
    placed(2, "h1", "h2", traffic=profile(200, (0, 60, 50_000))),
    placed(3, "h2", "h0", traffic=profile(200, (0, 60, 50_000))),
]


def test_the_paper_discards_placements_with_a_loop() -> None:
    answer = align(TRIANGLE)
    assert answer.rejected is not None
    assert answer.rejected.code is ReasonCode.DEPENDENCY_LOOP
    assert dict(answer.rejected.numbers) == {"links": 3, "jobs": 3}
    assert answer.schedules == ()
    assert answer.unmatched == (1, 2, 3)
    assert align(TRIANGLE[:2]).rejected is None


def test_two_jobs_on_the_same_two_hosts_are_a_loop_to_the_letter() -> None:
    pair = [placed(i, "h0", "h1", traffic=profile(200, (0, 60, 50_000))) for i in (1, 2)]
    assert align(pair).rejected is not None
    assert align(pair, loop_test="reduced").rejected is None
    assert align(pair, loop_test="reduced").score == 100
    light = [placed(i, "h0", "h1", traffic=profile(200, (0, 60, 20_000))) for i in (1, 2)]
    assert align(light).rejected is not None
    assert align(light, loop_test="contended").rejected is None


def test_a_loop_may_be_left_unaligned() -> None:
    answer = align(TRIANGLE, loops="leave")
    assert answer.rejected is None
    assert answer.schedules == ()
    assert answer.score == pytest.approx(100 * (1 - 0.3 * 0.3))  # independent phases


def test_a_loop_may_be_solved_jointly() -> None:
    answer = align(TRIANGLE, loops="joint")
    assert (answer.rejected, answer.score, answer.unmatched) == (None, 100, ())
    at = {s.job: s.shift_us for s in answer.schedules}
    for a, b in itertools.combinations(at, 2):
        assert 60_000 <= (at[a] - at[b]) % 200_000 <= 140_000


def test_time_shifts_keep_the_rotation_of_every_link_of_a_tree() -> None:
    jobs = [
        placed(1, "h0", "h1", traffic=profile(120, (0, 40, 50_000))),
        placed(2, "h1", "h2", traffic=profile(240, (30, 60, 50_000))),
        placed(3, "h2", "h3", traffic=profile(120, (0, 35, 50_000))),
        placed(4, "h3", "h4", traffic=profile(60, (10, 20, 50_000))),
    ]
    answer = align(jobs)
    assert answer.score == 100
    starts = {1: (0, 40), 2: (30, 60), 3: (0, 35), 4: (10, 20)}
    at = {s.job: s for s in answer.schedules}
    for link in answer.links:
        busy: list[tuple[int, int]] = []
        for job in link.jobs:
            offset, duration = (x * 1000 for x in starts[job])
            first = at[job].shift_us + offset
            busy += [
                ((first + n * at[job].period_us) % 240_000, duration)
                for n in range(240_000 // at[job].period_us)
            ]
        for (x, dx), (y, _) in itertools.permutations(busy, 2):
            assert (y - x) % 240_000 >= dx, (link.link, busy)


def test_nothing_is_shaped_injected_gated_or_regulated() -> None:
    answer = align(on_one_link((200, (60, 50)), (200, (60, 50)), (200, (60, 50))))
    assert answer.shaping == ()
    assert not answer.recompute
    assert not any(s.inject_us or s.gate or s.regulated for s in answer.schedules)
    assert [s.adjust for s in answer.schedules] == [0, 0.05, 0.05]  # the reference sets the slots


def test_only_compatible_jobs_adjust_themselves() -> None:
    answer = align(on_one_link((180, (120, 40)), (180, (120, 40))))
    assert len(answer.schedules) == 2
    assert not any(s.adjust for s in answer.schedules)


def test_a_job_that_is_held_up_elsewhere_drags_nobody_along() -> None:
    """1 and 2 clash on b, and the slots of 3, which fits beside 2 on c, would be counted from 1."""
    loud, quiet = profile(200, (0, 150, 1_000)), profile(200, (0, 40, 1_000))
    placed_there = (
        placed(1, "a", "b", traffic=loud),
        placed(2, "b", "c", traffic=loud),
        placed(3, "c", "d", traffic=quiet),
    )
    snap = snapshot(*(host(n) for n in "abcd"), placed=placed_there)
    answer = Cassini().align(placed_there, snap)
    assert {link.link: link.score for link in answer.links}["c"] == 100
    assert [s.job for s in answer.schedules] == [1, 2, 3]
    assert not any(s.adjust for s in answer.schedules)
    alone = Cassini().align(placed_there[1:], snap)
    assert [s.adjust for s in alone.schedules] == [0, 0.05]


def test_iteration_times_within_the_tolerance_are_equal_and_others_have_no_circle() -> None:
    near = align(on_one_link((200, (60, 50)), (200.6, (60, 50))))
    assert near.score == 100
    assert [s.period_us for s in near.schedules] == [200_000, 200_600]
    far = align(on_one_link((200, (60, 50)), (201.7, (60, 50))))
    assert far.schedules == ()
    assert far.unmatched == (1, 2)
    assert far.score == pytest.approx(100 * (1 - 60 / 200 * 60 / 201.7))


@pytest.mark.parametrize(
    "options",
    [
        {"loops": "maybe"},
        {"loop_test": "none"},
        {"demand": "tree"},
        {"angle_deg": 0.0},
        {"adjust": 0.7},
        {"min_angles": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        CassiniOptions(**options)  # type: ignore[arg-type]
