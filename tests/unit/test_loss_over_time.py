"""What a mesh finds of a link in simulated time: loss, dead moments, and an hour of a sound one."""

import random
from collections.abc import Callable, Iterator

import pytest

from rm.core.monitoring.cells import Cell, Status
from rm.core.monitoring.judging import after, in_doubt
from rm.core.monitoring.mesh import USUAL, Mesh
from rm.core.monitoring.pace import FOLLOW_UPS, closer, pace_of
from rm.units import MINUTE_US, SECOND_US

MESH = Mesh("latency", thresholds=USUAL)
BAD = (Status.WARN, Status.CRITICAL)
PACE = pace_of([(n, 4) for n in range(8)], 32, MINUTE_US, MESH)  # a zone of eight or nine hosts
Loses = Callable[[float, random.Random], bool]  # is a packet that is sent at this second lost?


def tries(loses: Loses, minutes: int, seed: int) -> Iterator[tuple[float, Cell]]:
    """The cell of one direction after each try, and the second at which that ends."""
    chance, cell = random.Random(seed), Cell("latency", "loss", "a", "b")
    test_s = PACE.test_us / SECOND_US
    for minute in range(minutes):
        at_s = 60 * minute + chance.uniform(0, 2)
        for number in range(1 + FOLLOW_UPS):
            if number and not (in_doubt(cell, USUAL) or cell.result is not cell.status):
                break
            packets = (closer(MESH, PACE.test_us) if number else MESH).packets
            lost = sum(loses(at_s + test_s * n / packets, chance) for n in range(packets))
            at_s += test_s + 1
            cell = after(
                cell, 100 * lost / packets, "", round(at_s * 1e6), USUAL, MESH.attempts, sent=packets
            )
            yield at_s, cell


def told_after(loses: Loses, seed: int) -> tuple[float, Cell]:
    """How long after its begin, in the second minute, the fault is told."""
    begin_s = random.Random(-seed).uniform(60, 120)
    for at_s, cell in tries(lambda t, chance: t >= begin_s and loses(t, chance), 12, seed):
        if cell.status in BAD:
            return at_s - begin_s, cell
    return float("inf"), Cell("latency", "loss", "a", "b")


def at_random(share: float) -> Loses:
    return lambda _, chance: chance.random() < share


def test_a_link_that_is_dead_for_six_of_twenty_seconds_is_told_within_two_minutes() -> None:
    for seed in range(100):
        phase_s = random.Random(1_000 + seed).uniform(0, 20)
        took_s, cell = told_after(lambda t, _, p=phase_s: (t + p) % 20 < 6, seed)  # type: ignore[misc]
        assert took_s < 110
        assert cell.status is Status.CRITICAL
        assert "of 1100 packets in 2 tries" in cell.message or "of 2100 packets" in cell.message


def test_one_percent_is_told_within_five_minutes_with_its_confidence() -> None:
    found = [told_after(at_random(0.01), seed) for seed in range(100)]
    assert sum(took_s < 295 for took_s, _ in found) >= 95
    assert {cell.status for _, cell in found} == {Status.WARN}
    assert all("a warning from 0.5 %" in cell.message for _, cell in found)
    assert all(cell.value is not None and 0.5 < cell.value < 2.5 for _, cell in found)
    five = [told_after(at_random(0.05), seed)[0] for seed in range(40)]
    assert max(five) < 150


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.0005, 0.0015])
def test_an_hour_of_a_sound_link_raises_nothing(share: float) -> None:
    """72 directions of nine hosts lose a few packets, as busy ones may, and once all of a moment."""
    number = 0
    for seed in range(72):
        burst_s = random.Random(-seed).uniform(0, 3_600)

        def loses(at_s: float, chance: random.Random, burst_s: float = burst_s) -> bool:
            return chance.random() < share or 0 <= at_s - burst_s < 0.3

        for _, cell in tries(loses, 60, seed):
            number += 1
            assert cell.status is Status.OK, cell.message
    assert number < 72 * 60 * 1.8  # so few looks were closer


def test_what_is_over_ends_soon() -> None:
    for seed in range(20):
        cells = list(tries(lambda t, chance: t < 600 and chance.random() < 0.01, 14, seed))
        assert any(cell.status in BAD for at_s, cell in cells if at_s < 600)
        assert cells[-1][1].status is Status.OK


def test_rounds_of_latency_are_made_side_by_side_as_far_as_there_is_room() -> None:
    assert (len(PACE.groups), PACE.test_us) == (1, 18 * SECOND_US)
    wide = pace_of([(n, 9) for n in range(8)], 32, MINUTE_US, MESH)
    assert [len(group) for group in wide.groups] == [3, 3, 2]
    assert wide.test_us == 8 * SECOND_US
    rates = Mesh("rates", tests=("latency", "throughput"))  # they fill the links
    assert pace_of([(0, 2), (1, 2)], 32, MINUTE_US, rates).groups == ((0,), (1,))
    assert pace_of([], 32, MINUTE_US, MESH).groups == ()
