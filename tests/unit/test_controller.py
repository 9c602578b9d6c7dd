"""The stop-and-wait controller: worked examples, and what must hold for any reports."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.core.model.network.alignment import Schedule
from rm.policies.regulate.controller import (
    Command,
    Controller,
    Inspect,
    Member,
    Pause,
    Phase,
    Recalculate,
    Report,
    Retime,
    member_of,
)
from tests.examples import examples

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "controller.json").read_text())


def plain(command: Command) -> list[Any]:
    if isinstance(command, Pause):
        return ["pause", command.job, command.at, command.length]
    if isinstance(command, Inspect):
        return ["inspect", list(command.jobs), command.why]
    assert isinstance(command, Recalculate)
    return ["recalculate"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_worked_example(case: dict[str, Any]) -> None:
    given_, wanted = case["given"], case["wanted"]
    controller = Controller()
    members = [Member(**{**m, "rank": tuple(m["rank"])}) for m in given_["members"]]
    starts = {int(job): at for job, at in (given_["next_start"] or {}).items()}
    initial = controller.install(7, members, given_["links"], starts)
    assert [plain(c) for c in initial] == wanted["initial"]
    commands = [
        [i, *plain(command)]
        for i, report in enumerate(given_["reports"])
        for command in controller.report(Report(*report))
    ]
    assert commands == wanted["commands"]
    assert controller.phase(7) == wanted["phase"]


def slow(job: int, start: int, times: int = 6, duration: int = 230) -> list[Report]:
    return [Report(job, start + i * duration, duration) for i in range(times)]


PAIR = [Member(1, (0,), True, 0, 200), Member(2, (1,), False, 100, 200)]


def test_nothing_happens_before_the_reference_was_seen() -> None:
    controller = Controller()
    assert controller.install(1, PAIR, [[1, 2]]) == []
    assert [c for r in slow(2, 130) for c in controller.report(r)] == []


def test_a_job_that_computes_otherwise_is_inspected_even_if_it_keeps_its_time() -> None:
    """Half the batch: its gate, or contention, fills the time that the compute phase no longer takes."""
    controller = Controller()
    gated = Member(2, (1,), False, 100, 200, compute=120, gate=True)
    controller.install(1, [PAIR[0], gated], [[1, 2]], {1: 0, 2: 100})
    controller.report(Report(1, 0, 200))
    reports = [Report(2, 100 + 200 * i, 200, 15, 125) for i in range(10)]
    commands = [c for r in reports for c in controller.report(r)]
    assert [plain(c) for c in commands] == [["inspect", [2], "compute"], ["recalculate"]]
    usual = [Report(2, 100 + 200 * i, 200, 0, 80) for i in range(20)]
    controller.install(1, [PAIR[0], gated], [[1, 2]], {1: 0, 2: 100})
    assert [c for r in usual for c in controller.report(r)] == []


def test_three_readjustments_within_a_hundred_iterations_call_for_inspection() -> None:
    controller = Controller()
    controller.install(1, PAIR, [[1, 2]])
    controller.report(Report(1, 0, 200))
    commands = [c for r in slow(2, 150, 60, 231) for c in controller.report(r)]
    assert [type(c) for c in commands] == [Pause, Pause, Inspect, Recalculate]
    assert plain(commands[2]) == ["inspect", [1, 2], "frequent"]
    assert controller.phase(1) is Phase.INSPECT
    assert controller.report(Report(2, 50_000, 900)) == []
    controller.install(1, PAIR, [[1, 2]], {1: 60_000, 2: 60_100})
    assert controller.phase(1) is Phase.MONITOR


def given_up(controller: Controller, times: int = 1) -> None:
    """Job 2 is slow in its slot, and was each time after an inspection that changed nothing."""
    for _ in range(times):
        controller.install(1, PAIR, [[1, 2]], {1: 0, 2: 100})
        controller.report(Report(1, 0, 200))
        for n in range(6):
            controller.report(Report(2, 100 + n * 231, 245 if n == 5 else 231))


def good(controller: Controller, count: int) -> None:
    for n in range(count):
        controller.report(Report(2, 60_100 + n * 200, 200))


def test_who_was_given_up_twice_stays_so_until_a_whole_window_is_good() -> None:
    controller = Controller()
    controller.install(1, PAIR, [[1, 2]])
    assert controller.standings() == {1: None, 2: None}
    for n in range(10):
        controller.report(Report(1, n * 200, 200))
    assert controller.standings() == {1: "", 2: None}
    given_up(controller)
    for report in slow(2, 150, 60, 231):
        controller.report(report)
    controller.install(1, PAIR, [[1, 2]])
    controller.report(Report(1, 0, 200))
    for report in slow(2, 150, 60, 231):
        controller.report(report)
    why = "it had to be moved back again and again"
    assert controller.standings() == {1: None, 2: why}
    controller.install(1, PAIR, [[1, 2]], {1: 60_000, 2: 60_100})  # nothing was found: the same plan again
    good(controller, 9)
    assert controller.standings()[2] == why
    good(controller, 1)
    assert controller.standings()[2] == ""


def test_slow_in_its_slot_is_given_up_too_and_forgotten_with_the_job() -> None:
    controller = Controller()
    given_up(controller, 2)
    assert controller.standings()[2] == "it is slow although it is in its slot"
    controller.install(1, PAIR[:1], [])
    assert controller.standings() == {1: None}
    given_up(controller)
    assert controller.standings()[2] is None, "another job of this number, given up once"


def test_a_host_that_is_slow_for_seconds_loses_no_rotation() -> None:
    """Each time it is inspected and its next window is good: however often that happens, nobody is told."""
    controller = Controller()
    for _ in range(5):
        given_up(controller)
        assert controller.phase(1) is Phase.INSPECT
        assert controller.standings()[2] is None
        controller.install(1, PAIR, [[1, 2]], {1: 60_000, 2: 60_100})
        good(controller, 10)
        assert controller.standings()[2] == ""


def test_readjustments_long_ago_are_forgotten() -> None:
    controller = Controller()
    controller.install(1, PAIR, [[1, 2]])
    controller.report(Report(1, 0, 200))
    at = 150
    kinds = []
    for _ in range(4):
        for report in slow(2, at, 16, 231):
            kinds += [type(c) for c in controller.report(report)]
        at += 16 * 231
        for i in range(60):
            controller.report(Report(1, i * 200, 200))
    assert kinds == [Pause] * 4


def test_the_epoch_follows_the_first_iteration_of_each_hyper_period() -> None:
    controller = Controller()
    members = [Member(1, (0,), True, 0, 100, mul=2), Member(2, (1,), False, 50, 200)]
    controller.install(1, members, [[1, 2]])
    for start, epoch in ((10, 10), (110, 10), (210, 210), (310, 210)):
        controller.report(Report(1, start, 100))
        assert controller.epoch(1) == epoch


def test_gated_jobs_are_told_when_the_reference_drifts() -> None:
    controller = Controller()
    low = Member(2, (1,), False, 98, 196, cushion=24, inject=5, gate=True)
    members = [Member(1, (0,), True, 0, 196, reference=True), low]
    installed = controller.install(1, members, [[1, 2]], {1: 1000, 2: 1098})
    assert installed == [Retime(2, 1000, 98, 196, 5, 9, True)]
    told = [controller.report(Report(1, 1000 + i * 197, 197)) for i in range(12)]
    assert [i for i, commands in enumerate(told) if commands] == [4, 9]
    assert told[4] == [Retime(2, 1985, 98, 196, 5, 9, True)]


def test_gated_jobs_hear_at_once_when_an_iteration_of_the_reference_took_longer() -> None:
    controller = Controller()
    low = Member(2, (1,), False, 98, 196, cushion=24, inject=5, gate=True)
    members = [Member(1, (0,), True, 0, 196, reference=True), low]
    controller.install(1, members, [[1, 2]], {1: 1000, 2: 1098})
    assert controller.report(Report(1, 1000, 246)) == [Retime(2, 1246, 98, 196, 5, 9, True)]


def test_without_regulation_a_job_is_moved_to_its_slot_once_and_never_judged() -> None:
    controller = Controller()
    members = [
        Member(1, (0,), True, 0, 200, regulated=False),
        Member(2, (1,), False, 100, 200, regulated=False),
    ]
    assert controller.install(1, members, [[1, 2]]) == []
    assert controller.report(Report(2, 20, 200)) == [], "the reference has not been seen"
    assert controller.report(Report(1, 0, 200)) == []
    (pause,) = controller.report(Report(2, 220, 200))
    assert (pause.job, pause.at, pause.length) == (2, 420, 80)  # type: ignore[union-attr]
    late = [c for r in slow(1, 200, 20) + slow(2, 420, 20) for c in controller.report(r)]
    assert late == []
    started = Controller()
    assert len(started.install(1, members, [[1, 2]], {1: 0, 2: 20})) == 1
    assert started.report(Report(2, 220, 200)) == [], "it was moved when the plan was installed"


def test_a_job_that_adjusts_itself_is_told_its_slots_and_nothing_else() -> None:
    controller = Controller()
    low = Member(2, (1,), False, 98, 196, adjust=10, regulated=False)
    members = [Member(1, (0,), True, 0, 196, reference=True, regulated=False), low]
    controller.install(1, members, [[1, 2]])
    assert controller.report(Report(1, 1000, 196)) == [Retime(2, 1196, 98, 196, 0, 9, False, 10)]
    assert controller.report(Report(2, 1000, 300)) == []


def test_a_removed_component_is_forgotten() -> None:
    controller = Controller()
    controller.install(1, PAIR, [[1, 2]])
    controller.remove(1)
    assert controller.components == ()
    assert controller.report(Report(1, 0, 200)) == []


def test_a_schedule_becomes_a_member_with_a_dead_band_above_noise() -> None:
    schedule = Schedule(5, 5, 98_000, 196_000, 191_000, 5_000, cushion_us=1_000, gate=True)
    member = member_of(schedule, (0, 5))
    assert (member.period, member.inject, member.gate) == (196_000, 5_000, True)
    assert (member.adjust, member.regulated) == (0, True)
    left = member_of(replace(schedule, gate=False, adjust=0.05, regulated=False), (0, 5))
    assert (left.adjust, left.regulated) == (9_800, False)
    controller = Controller()
    reference = Member(1, (0,), True, 0, 196_000, reference=True)
    starts = {1: 0, 5: 98_000 + 3_000}  # 3 ms late: within 2 % of the period
    assert not [c for c in controller.install(1, [reference, member], [[1, 5]], starts) if type(c) is Pause]


def test_no_high_job_is_paused_beside_a_low_one() -> None:
    paused = {"high": 0, "low": 0}

    @settings(max_examples=examples(60))
    @given(st.data())
    def whatever_is_reported(data: st.DataObject) -> None:
        count = data.draw(st.integers(2, 4))
        members = [
            Member(j, (j,), data.draw(st.booleans()), data.draw(st.integers(0, 199)), 200)
            for j in range(count)
        ]
        links = [sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=2))) for _ in range(2)]
        controller = Controller()
        controller.install(0, members, links)
        clock = {j: data.draw(st.integers(0, 400)) for j in range(count)}
        high = {m.job for m in members if m.high}
        for _ in range(60):
            job = data.draw(st.integers(0, count - 1))
            duration = data.draw(st.sampled_from([200, 225, 240, 300]))
            commands = controller.report(Report(job, clock[job], duration))
            clock[job] += duration
            near = {j for link in links if job in link for j in link} | {job}
            for command in commands:
                if isinstance(command, Pause):
                    paused["high" if command.job in high else "low"] += 1
                    assert command.job != 0  # the reference
                    assert command.job in near
                    assert 0 < command.length < 200
                    if near - high - {0}:
                        assert command.job not in high

    whatever_is_reported()
    assert all(paused.values()), paused
