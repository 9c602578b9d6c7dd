"""Questions as people ask them: one link, several, loops; and complaints that name the place."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.errors import UsageError
from rm.policies.interleave.answer import Answer, LinkAnswer, answer, thresholds_for
from rm.policies.interleave.circle import slot_pattern
from rm.policies.interleave.problem import problem_from
from tests.examples import examples

FIXED = settings(max_examples=examples(80))


def job(name: str, period: float, *phases: tuple[float, float, float], **more: Any) -> dict[str, Any]:
    keys = ("offset_ms", "duration_ms", "bandwidth_mbps")
    shown = [dict(zip(keys, phase, strict=True)) for phase in phases]
    return {"name": name, "period_ms": period, "phases": shown, **more}


def link(name: str, capacity: float, *jobs: str) -> dict[str, Any]:
    return {"name": name, "capacity_mbps": capacity, "jobs": list(jobs)}


def ask(*jobs: dict[str, Any], paper: bool = False, offline: bool = True, **top: Any) -> Answer:
    problem = problem_from({"jobs": list(jobs), **top})
    return answer(problem, thresholds_for(problem, paper), offline)


def excess_share(link: LinkAnswer, found: Answer) -> Fraction:
    """What the global shifts exceed the capacity by: measured at every half millisecond."""
    perimeter = link.perimeter
    assert perimeter is not None
    over = 0
    for tick in range(0, perimeter, 500):  # phases of the tests begin and end at such ticks
        total = 0
        for j, phases in link.load.phases.items():
            at = (tick + 250 - found.shifts[j]) % found.periods[j]
            total += sum(rate for offset, duration, rate in phases if offset <= at < offset + duration)
        over += max(0, total - link.load.capacity)
    return Fraction(over * 500, link.load.capacity * perimeter)


def test_a_low_job_that_cannot_keep_the_pace_of_a_high_one_is_unmatched() -> None:
    high = job("high", 196, (0, 86, 900), priority="high")
    found = ask(high, job("low", 200, (0, 86, 900)), capacity_mbps=1000)
    assert found.unmatched == (0, 1)
    assert [float(found.periods[j]) for j in (0, 1)] == [196_000, 200_000]


def test_the_phases_of_a_job_that_is_longer_than_its_circle_are_not_cut_off() -> None:
    """One that ends with the iteration meets what begins with the next one, on the shorter circle."""
    assert slot_pattern(((190, 20, 5),), 200, 1, 20) == (5, *[0] * 18, 5)


def test_two_equal_jobs_are_put_opposite_each_other() -> None:
    found = ask(job("a", 100, (0, 40, 10)), job("b", 100, (0, 40, 10)), capacity_mbps=10, slots=100)
    (only,) = found.links
    assert (only.name, only.score, only.unrotated) == ("link", 100, 60)
    assert only.psi_rad == pytest.approx(math.pi)
    assert only.cushion() == 10_000
    assert found.shifts == {0: 0, 1: 50_000}
    assert (found.perimeter, found.consistent, found.loop, found.unmatched) == (100_000, True, None, ())


def test_the_high_priority_job_is_the_reference_wherever_it_stands() -> None:
    found = ask(
        job("low", 100, (0, 40, 10)), job("high", 100, (10, 40, 10), priority="high"), capacity_mbps=10
    )
    assert found.shifts[1] == 0 < found.shifts[0]


def test_duty_cycles_are_exact_phases_at_the_beginning() -> None:
    short = {"name": "a", "period_ms": Decimal("127.5"), "duty_cycle": Decimal("0.4"), "bandwidth_mbps": 9}
    problem = problem_from({"capacity_mbps": 10, "jobs": [short]})
    assert problem.jobs[0].profile.phases[0].duration_us == 51_000
    assert problem.jobs[0].profile.period_us == 127_500


def test_a_job_that_wants_more_than_its_link_is_slowed_down_by_it() -> None:
    found = ask(job("a", 100, (0, 20, 20)), job("b", 120, (0, 40, 10)), capacity_mbps=10)
    assert found.periods == {0: 120_000, 1: 120_000}  # 20 ms at 20 are 40 ms at 10
    assert found.links[0].score == 100


def test_links_with_room_for_all_and_periods_without_a_common_circle() -> None:
    roomy = ask(job("a", 100, (0, 50, 10)), job("b", 70, (0, 50, 10)), capacity_mbps=20)
    assert (roomy.links[0].contended, roomy.links[0].score, roomy.links[0].psi_rad) == (False, 100, None)
    apart = ask(job("a", 1000, (0, 500, 10)), job("b", 17, (0, 8.5, 10)), capacity_mbps=10)
    assert apart.unmatched == (0, 1)
    assert apart.links[0].solution is None
    assert apart.links[0].score == pytest.approx(75)
    assert apart.shifts == {0: 0, 1: 0}


def test_idle_time_makes_periods_fit_and_is_told_per_iteration() -> None:
    found = ask(job("vgg", 193, (0, 60, 10)), job("wrn", 352, (0, 95, 10)), capacity_mbps=10)
    assert found.links[0].score == 100
    assert found.perimeter == 386_000
    assert found.injected == {0: 0, 1: 34_000}
    assert found.periods == {0: 193_000, 1: 386_000}


def test_an_imperfect_case_is_answered_with_its_best_rotation_and_a_proof() -> None:
    found = ask(job("a", 100, (0, 60, 10)), job("b", 98, (0, 60, 10)), capacity_mbps=10, slots=100)
    (only,) = found.links
    assert only.score == 80
    assert only.solution is not None
    assert only.solution.scheme.exact
    assert found.injected[1] == 2_000
    assert only.cushion() == -20_000  # or more: they overlap


def test_the_first_interval_leaves_less_cushion_than_the_widest() -> None:
    jobs = [job(name, 120, (0, 20, 10)) for name in "abc"]
    first = ask(*jobs, capacity_mbps=10, offline=False).links[0].cushion()
    widest = ask(*jobs, capacity_mbps=10).links[0].cushion()
    assert first is not None
    assert widest == 20_000 > first


TRIANGLE = [link("l1", 10, "a", "b"), link("l2", 10, "b", "c"), link("l3", 10, "a", "c")]


def test_a_loop_is_solved_jointly() -> None:
    found = ask(*(job(name, 72, (0, 20, 10)) for name in "abc"), links=TRIANGLE)
    assert found.loop is not None
    assert sorted(map(str, found.loop)) == ["0", "1", "2", "l1", "l2", "l3"]
    assert found.consistent
    assert [one.score for one in found.links] == [100, 100, 100]
    assert [one.cushion() for one in found.links] == [4_000] * 3  # the third of the circle each


def test_two_jobs_on_the_same_two_links_are_no_loop() -> None:
    links = [link("l1", 10, "a", "b"), link("l2", 10, "a", "b")]
    found = ask(job("a", 72, (0, 20, 10)), job("b", 72, (0, 20, 10)), links=links)
    assert (found.loop, found.consistent) == (None, True)
    assert [one.score for one in found.links] == [100, 100]


def test_a_loop_that_has_no_joint_scheme_is_solved_link_by_link_and_found_out() -> None:
    """Three iterations of 70 ms against one of 200 and 10 idle: each two fit, all three do not."""
    jobs = [job(name, period, (0, period / 4, 10)) for name, period in (("a", 70), ("b", 200), ("c", 70))]
    found = ask(*jobs, links=TRIANGLE)
    assert found.loop is not None
    assert [one.score for one in found.links] == [100, 100, 100]
    assert not found.consistent
    for one in found.links:
        assert (excess_share(one, found) > 0) == (one.name in found.broken)


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Three or four jobs over two to four links, most of them contended; phases of whole slots."""
    names = "abcd"[: draw(st.integers(3, 4))]
    jobs = []
    for name in names:
        period = draw(st.sampled_from([24, 24, 12]))
        half = period // 2
        rate = st.sampled_from([6, 10])
        phase = st.tuples(st.integers(0, half // 2), st.integers(1, half // 2), rate)
        offset, *first = draw(phase)
        phases = [(offset, *first)]
        if draw(st.booleans()):
            offset, *second = draw(phase)
            phases.append((half + offset, *second))
        jobs.append(job(name, period, *phases))
    links = [
        link(f"l{i}", 10, *sorted(draw(st.sets(st.sampled_from(names), min_size=2, max_size=3))))
        for i in range(draw(st.integers(2, 4)))
    ]
    return {"jobs": jobs, "links": links, "slots": 48}


@FIXED
@given(questions())
def test_the_shifts_give_every_link_its_score(question: dict[str, Any]) -> None:
    problem = problem_from(question)
    found = answer(problem, thresholds_for(problem))
    assert found.consistent  # loops are solved jointly
    members = {one["name"]: set(one["jobs"]) for one in question["links"]}
    for one in found.links:
        if one.contended:
            assert one.solution is not None
            assert float(100 - 100 * excess_share(one, found)) == pytest.approx(one.score)
            others = [jobs for name, jobs in members.items() if name != one.name]
            if found.loop is None and not any(members[one.name] <= jobs for jobs in others):
                alone = {**question, "links": [x for x in question["links"] if x["name"] == one.name]}
                lonely = problem_from(alone)  # with others it is no worse than by itself
                assert answer(lonely, thresholds_for(lonely)).links[0].score == pytest.approx(one.score)


def change(path: str, value: Any) -> Any:
    """A good question with one thing changed; `path` as complaints write it, None removes."""
    good: Any = {
        "capacity_mbps": 10,
        "jobs": [
            job("a", 100, (0, 40, 10)),
            {"name": "b", "period_ms": 9, "duty_cycle": 0.5, "bandwidth_mbps": 1},
        ],
        "links": [link("l1", 10, "a", "b")],
    }
    *steps, last = path.replace("]", "").replace("[", ".").split(".")
    inner = good
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    at = int(last) if last.isdigit() else last
    if value is None:
        del inner[at]
    else:
        inner[at] = value
    return good


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("links[0].capacity_mbps", 0, "links[0].capacity_mbps"),
        ("slots", 0, "slots"),
        ("slots", 3601, "slots"),
        ("slots", 7.5, "slots"),
        ("slots", True, "slots"),
        ("jobs", [], "jobs"),
        ("jobs", {}, "jobs"),
        ("jobs", None, "jobs"),
        ("jobs[0]", 5, "jobs[0]"),
        ("jobs[0].name", "", "jobs[0].name"),
        ("jobs[0].name", "b", "jobs[1].name"),
        ("jobs[0].name", 5, "jobs[0].name"),
        ("jobs[0].name", "\x1b[2J", "jobs[0].name"),
        ("jobs[0].name", None, "jobs[0].name"),
        ("jobs[0].priority", "urgent", "jobs[0].priority"),
        ("jobs[0].period_ms", 0, "jobs[0].period_ms"),
        ("jobs[0].period_ms", -1, "jobs[0].period_ms"),
        ("jobs[0].period_ms", "255", "jobs[0].period_ms"),
        ("jobs[0].period_ms", float("nan"), "jobs[0].period_ms"),
        ("jobs[0].period_ms", float("inf"), "jobs[0].period_ms"),
        ("jobs[0].period_ms", Decimal("1e99999999"), "jobs[0].period_ms"),
        ("jobs[0].period_ms", Decimal("1e-99999999"), "jobs[0].period_ms"),
        ("jobs[0].period_ms", 10**9, "jobs[0].period_ms"),
        ("jobs[0].period_ms", None, "jobs[0].period_ms"),
        ("jobs[0].perod_ms", 4, "jobs[0]"),
        ("jobs[0].phases", [], "jobs[0].phases"),
        ("jobs[0].phases", None, "jobs[0]"),
        ("jobs[0].duty_cycle", 0.3, "jobs[0]"),
        ("jobs[0].phases[0]", [], "jobs[0].phases[0]"),
        ("jobs[0].phases[0].offset_ms", 100, "jobs[0].phases[0].offset_ms"),
        ("jobs[0].phases[0].offset_ms", -1, "jobs[0].phases[0].offset_ms"),
        ("jobs[0].phases[0].duration_ms", 101, "jobs[0].phases[0].duration_ms"),
        ("jobs[0].phases[0].duration_ms", None, "jobs[0].phases[0].duration_ms"),
        ("jobs[0].phases[0].bandwidth_mbps", True, "jobs[0].phases[0].bandwidth_mbps"),
        ("jobs[1].duty_cycle", 1.01, "jobs[1].duty_cycle"),
        ("jobs[1].duty_cycle", None, "jobs[1].duty_cycle"),
        ("jobs[1].bandwidth_mbps", None, "jobs[1].bandwidth_mbps"),
        ("links", [], "links"),
        ("links[0].name", None, "links[0].name"),
        ("links[0].capacity_mbps", -5, "links[0].capacity_mbps"),
        ("links[0].jobs[1]", "c", "links[0].jobs[1]"),
        ("links[0].jobs[1]", ["a"], "links[0].jobs[1]"),
        ("links[0].jobs[1]", "a", "links[0].jobs[1]"),
        ("links[0].jobs", None, "links[0].jobs"),
    ],
)
def test_complaints_name_the_place(path: str, value: Any, where: str) -> None:
    with pytest.raises(UsageError) as raised:
        problem_from(change(path, value))
    assert raised.value.what.startswith(where + " ")
    assert raised.value.hint


def test_a_question_is_an_object() -> None:
    for value in (None, [], "jobs", 5):
        with pytest.raises(UsageError, match="The top level is"):
            problem_from(value)
    problem_from(change("slots", 72))  # and the good one is good
