"""The demo measures once more what a busy machine has spoiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rm.core.model.asked.traffic import Phase, TrafficProfile
from rm.demo.again import LOOK_S, PATIENCE_S, Spoiled, await_quiet, measured_again, processor_ticks
from rm.demo.figures import why_no_room
from rm.errors import RmError


def acting(*outcomes: Exception | None) -> tuple[list[str], object]:
    """What the demo did and said, and what ended it, when its tries come out so."""
    done: list[str] = []
    tries = iter(outcomes)

    def measure() -> None:
        done.append("measured")
        if (problem := next(tries)) is not None:
            raise problem

    try:
        measured_again(measure, lambda: done.append("began again"), done.append)
    except RmError as problem:
        return done, problem
    return done, None


def test_a_good_measurement_is_made_once() -> None:
    assert acting(None) == (["measured"], None)


def test_a_spoiled_one_is_made_again_once() -> None:
    done, ended = acting(Spoiled("It waited."), None)
    assert ended is None
    assert [done[0], *done[2:]] == ["measured", "began again", "measured"]
    assert done[1].startswith("It waited. All is measured once more")
    done, ended = acting(Spoiled("It waited."), Spoiled("It waited again."))
    assert str(ended) == "It waited again. Try again while this machine is less busy."
    assert done.count("measured") == 2


def test_what_is_no_fault_of_the_machine_is_not_tried_again() -> None:
    wrong = RmError("Job 1 ended as FAILED.")
    assert acting(wrong) == (["measured"], wrong)


@pytest.mark.parametrize(
    ("idle", "found"),
    [([90], True), ([10, 30, 60], True), ([0], False)],
    ids=["at once", "later", "never"],
)
def test_a_quieter_moment_is_waited_for_in_bounds(idle: list[int], found: bool) -> None:
    slept: list[float] = []
    shown: list[str] = []

    def ticks() -> Iterator[tuple[int, int]]:
        """Of 100 in each look, as many as `idle` says; the last for ever."""
        total = 0
        for look in range(1000):
            yield total, 100 * look
            total += idle[min(look, len(idle) - 1)]

    counted = ticks()
    assert await_quiet(shown.append, lambda: next(counted), slept.append) is found
    assert sum(slept) == (LOOK_S * len(idle) if found else PATIENCE_S)
    assert len(shown) == len(slept) - found


def test_the_processors_of_this_machine_are_read() -> None:
    idle, whole = processor_ticks()
    assert 0 < idle < whole


def profile(compute_ms: int, comm_ms: int) -> TrafficProfile:
    return TrafficProfile(
        1000 * (compute_ms + comm_ms), (Phase(1000 * compute_ms, 1000 * comm_ms, 100_000_000),)
    )


def test_jobs_that_were_slow_alone_are_no_pair_to_show() -> None:
    assert why_no_room({"high": profile(110, 86), "low": profile(105, 86)}) == ""
    told = why_no_room({"high": profile(110, 130), "low": profile(105, 120)})
    assert told == (
        "Alone the jobs communicate 250 ms together, more than the 225 ms of one iteration: "
        "their transfers waited for this machine."
    )
