"""How tries make a status: loss gathered over tries, other checks in a row, some beside their peers."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.monitoring.cells import Cell, Status, shown
from rm.core.monitoring.judging import after, judge
from rm.core.monitoring.loss import CONFIDENCE, at_least_pct, at_most_pct
from rm.core.monitoring.mesh import USUAL, Thresholds
from rm.core.monitoring.peers import usual_of

OK, WARN, CRITICAL, UNKNOWN = Status.OK, Status.WARN, Status.CRITICAL, Status.UNKNOWN
LIMITS = Thresholds(
    loss_warn_pct=1,
    loss_critical_pct=10,
    delay_warn_ms=5,
    bandwidth_warn_mbps=900,
    bandwidth_critical_mbps=100,
    mtu_critical_bytes=9000,
)
PACKETS = 100


def losing(
    lost: Sequence[int], limits: Thresholds = USUAL, attempts: int = 3, sent: int = PACKETS
) -> list[Cell]:
    """The cell after each of tries that lost so many of their packets."""
    cell, cells = Cell("m", "loss", "a", "b"), []
    for number, count in enumerate(lost, start=1):
        cell = after(cell, 100.0 * count / sent, "", number, limits, attempts, sent=sent)
        cells.append(cell)
    return cells


def delayed(values: Sequence[float | None], attempts: int = 3, usual: float | None = None) -> list[Cell]:
    cell, cells = Cell("m", "delay", "a", "b"), []
    for number, value in enumerate(values, start=1):
        cell = after(cell, value, "b is gone", number, LIMITS, attempts, usual=usual)
        cells.append(cell)
    return cells


@pytest.mark.parametrize(
    ("check", "value", "status"),
    [
        ("loss", 0.0, OK),
        ("loss", 1.0, WARN),
        ("loss", 100.0, CRITICAL),
        ("delay", 4_999, OK),
        ("delay", 1e9, WARN),
        ("bandwidth", 950e6, OK),
        ("bandwidth", 899e6, WARN),
        ("bandwidth", 99e6, CRITICAL),
        ("mtu", 1500, CRITICAL),
        ("loss", None, UNKNOWN),
    ],
)
def test_what_a_value_is_worth(check: str, value: float | None, status: Status) -> None:
    found, said = judge(check, value, "b is gone" if value is None else "", LIMITS)
    assert found is status
    assert said


# -- loss


def test_the_bounds_are_those_of_clopper_and_pearson() -> None:
    """By their definition, and in the case that has a closed form."""

    def tail(least: int, sent: int, share: float) -> float:
        row = [1.0]
        for _ in range(sent):  # the distribution, one packet after the other
            row = [
                (row[k] * (1 - share) if k < len(row) else 0.0) + (row[k - 1] * share if k else 0.0)
                for k in range(len(row) + 1)
            ]
        return sum(row[least:])

    for lost, sent in ((1, 20), (2, 20), (7, 100), (50, 100), (99, 100), (13, 300)):
        assert tail(lost, sent, at_least_pct(lost, sent) / 100) == pytest.approx(1 - CONFIDENCE, rel=1e-6)
        assert tail(lost + 1, sent, at_most_pct(lost, sent) / 100) == pytest.approx(CONFIDENCE, rel=1e-6)
    assert at_most_pct(0, 300) == pytest.approx(100 * (1 - 0.01 ** (1 / 300)))
    assert (at_least_pct(0, 5), at_most_pct(5, 5)) == (0.0, 100.0)
    assert 49 < at_least_pct(50_000, 100_000) < 50 < at_most_pct(50_000, 100_000) < 51


def test_five_percent_are_told_after_two_or_three_tries_with_the_right_figures() -> None:
    late = 0
    for seed in range(50):
        chance = random.Random(seed)
        tries = [sum(chance.random() < 0.05 for _ in range(PACKETS)) for _ in range(8)]
        cells = losing([0] * 20 + tries)
        bad = next(n for n, c in enumerate(cells[20:], start=1) if c.status in (WARN, CRITICAL))
        late += bad > 3
        told = cells[-1]
        assert told.status in (WARN, CRITICAL)
        assert told.value is not None
        assert 2 < told.value < 9
        assert f"loss {told.value:.3g} % (" in told.message
    assert late <= 5


@pytest.mark.parametrize("share", [0.0, 0.001, 0.002])
def test_a_loss_below_the_threshold_raises_nothing(share: float) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        tries = [sum(chance.random() < share for _ in range(PACKETS)) for _ in range(200)]
        assert {c.status for c in losing(tries)} == {OK}


def test_twenty_packets_cannot_show_one_percent() -> None:
    assert losing([1] + [0] * 10 + [1], sent=20)[-1].status is OK
    _, first, second = losing([0, 2, 2], sent=20)
    assert (first.status, second.status) == (OK, CRITICAL)  # 4 of 40 do: 2 % at least


def test_one_dead_moment_raises_nothing_and_dead_moments_that_come_again_do() -> None:
    assert {c.status for c in losing([0, 0, PACKETS] + [0] * 20)} == {OK}
    told = losing([0, 0, PACKETS, 0, 0, PACKETS])[-1]
    assert told.status is CRITICAL
    assert told.message == "loss 50 % (200 of 400 packets in 4 tries, at least 44.1 %), critical from 2 %"


def test_what_is_over_is_over_after_as_many_clean_tries_as_show_it() -> None:
    dead = losing([0] * 5 + [PACKETS] * 5 + [0] * 3)
    assert [c.status for c in dead[-5:]] == [CRITICAL] * 4 + [OK]
    assert (dead[-1].message, dead[-1].value) == ("loss 0 % (300 packets)", 0.0)
    some = losing([0] * 5 + [5, 3, 7, 6, 4] + [0] * 6)
    assert some[-6].status is not OK  # 3 % may lose none of 100 for once
    assert some[-1].status is OK


def test_a_status_never_speaks_with_other_figures_than_those_that_made_it() -> None:
    chance = random.Random(7)
    cells = losing([chance.choice((0, 0, 0, 1, 3, 8, 40)) for _ in range(300)])
    assert {cell.status for cell in cells} >= {WARN, CRITICAL}
    for cell in cells:
        if cell.status is CRITICAL:
            assert "critical from 2 %" in cell.message
            assert cell.value
        elif cell.status is WARN:
            assert "a warning from 0.5 %" in cell.message
        else:
            assert "from" not in cell.message


def test_a_restart_goes_on_with_what_was_gathered() -> None:
    before = losing([0, 0, 4])[-1]
    assert before.status is OK
    assert after(before, 5.0, "", 9, USUAL, 3, sent=PACKETS).status is not OK


def test_a_loss_near_a_threshold_does_not_change_its_status_with_each_try() -> None:
    """1.2 %, told as a warning, stays one; only packets that surely are below 0.5 % end it."""
    chance = random.Random(5)
    tries = [sum(chance.random() < 0.012 for _ in range(PACKETS)) for _ in range(200)]
    statuses = [c.status for c in losing([9, *tries])]
    changes = sum(a is not b for a, b in pairwise(statuses[statuses.index(WARN) :]))
    assert changes <= 4
    assert losing([9, *tries[:50], *[0] * 20])[-1].status is OK


# -- the other checks


values = st.lists(st.sampled_from([1_000.0, 6_000.0, 60_000.0, None]), max_size=30)
TWO_LEVELS = Thresholds(delay_warn_ms=5, delay_critical_ms=50)


@given(values, st.integers(1, 4))
def test_a_status_changes_when_so_many_tries_are_as_bad_or_as_good(
    values: list[float | None], attempts: int
) -> None:
    cell = Cell("m", "delay", "a", "b")
    known: list[Status] = []
    for n, value in enumerate(values):
        before = cell.status
        cell = after(cell, value, "gone", n + 1, TWO_LEVELS, attempts)
        known.append(judge("delay", value, "gone", TWO_LEVELS)[0])
        row = known[max(0, n + 1 - attempts) :]
        if len(row) == attempts and len(set(row)) == 1:
            assert cell.status is row[0]
        if cell.status is not before:
            assert cell.since_us == n + 1
            assert cell.status is not UNKNOWN or set(row) == {UNKNOWN}
        if cell.status in (OK, WARN, CRITICAL):
            assert cell.value is not None
            assert judge("delay", cell.value, "", TWO_LEVELS)[0] is cell.status
            assert judge("delay", cell.value, "", TWO_LEVELS)[1] == cell.message


def test_a_delay_that_is_now_bad_now_worse_is_bad() -> None:
    cells = [c.status for c in delayed([1_000, 6_000, 60_000, 6_000])]
    assert cells == [OK, OK, OK, WARN]


def test_failed_tries_leave_the_figures_until_the_status_is_unknown() -> None:
    cells = delayed([1_000, None, None, None, 1_000])
    assert [c.status for c in cells] == [OK, OK, OK, UNKNOWN, UNKNOWN]
    assert cells[2].message == "delay 1 ms"
    assert (cells[3].message, cells[3].value) == ("b is gone", None)


def test_maintenance_begins_and_ends_at_once_and_what_it_saw_is_forgotten() -> None:
    ok = losing([0])[-1]
    down = after(ok, 100.0, "", 2, USUAL, 3, sent=PACKETS, maintenance=True)
    assert (down.status, down.result) == (Status.MAINTENANCE, CRITICAL)
    assert after(down, 0.0, "", 3, USUAL, 3, sent=PACKETS).status is OK
    assert after(down, 100.0, "", 3, USUAL, 3, sent=PACKETS).status is CRITICAL
    assert shown(ok, 2, 60, maintenance=True).status is Status.MAINTENANCE
    assert shown(down, 2, 60).status is CRITICAL  # the window has passed, no try came since


def test_a_cell_that_nobody_checks_any_more_is_unknown() -> None:
    ok = after(Cell("m", "loss", "a", "b"), 0.0, "", 1_000, USUAL, 3, sent=PACKETS)
    assert shown(ok, 1_180, 60) == ok
    stale = shown(ok, 1_181, 60)
    assert (stale.status, stale.message) == (UNKNOWN, "not checked since: loss 0 % (100 packets)")
    assert shown(ok, 10**9, 0) == ok  # of no known interval


# -- beside the peers


def both(values: dict[str, float]) -> list[tuple[str, str, float]]:
    return [(a, b, v) for pair, v in values.items() for a, b in (pair, pair[::-1])]  # type: ignore[misc]


def test_what_is_usual_is_not_moved_by_a_host_whose_pairs_are_most_of_a_small_zone() -> None:
    zone = dict.fromkeys("abc", "z")
    delays = usual_of(both({"ab": 100, "ac": 23_000, "bc": 24_000}), zone, more_is_better=False)
    assert delays == {("z", "z"): 100}
    rates = usual_of(both({"ab": 900e6, "ac": 1.2e6, "bc": 1.1e6}), zone, more_is_better=True)
    assert rates == {("z", "z"): 900e6}
    assert (
        usual_of(both({"ab": 100}), zone, more_is_better=False) == {}
    )  # nobody can tell which one is unusual
    far = {**zone, "d": "y"}
    assert usual_of(both({"ad": 9_000, "bd": 9_100, "cd": 9_200}), far, False) == {("y", "z"): 9_100}


@pytest.mark.parametrize(
    ("ms", "usual_ms", "status"),
    [
        (4.9, 0.1, OK),
        (5.2, 0.1, WARN),
        (23.0, 0.1, CRITICAL),
        (23.0, None, OK),
        (110.0, 100.0, OK),  # of a long way a few milliseconds are nothing
        (151.0, 100.0, CRITICAL),
    ],
)
def test_a_delay_is_bad_beside_that_of_the_peers(ms: float, usual_ms: float | None, status: Status) -> None:
    found, said = judge("delay", 1e3 * ms, "", USUAL, usual_ms and 1e3 * usual_ms)
    assert found is status
    assert ("" if usual_ms is None else f" (peers {usual_ms:g} ms)") in said
    assert ("peers" in said) == (usual_ms is not None)


def test_jitter_and_the_slowest_packets_are_judged_by_thresholds_and_beside_the_peers() -> None:
    limits = Thresholds(jitter_warn_over_ms=2, jitter_critical_ms=50, delay_p95_warn_ms=20)
    assert judge("jitter", 1_900, "", limits, 100)[0] is OK
    assert judge("jitter", 2_200, "", limits, 100) == (
        WARN,
        "jitter 2.2 ms (peers 0.1 ms), a warning from 2.1 ms",
    )
    assert judge("jitter", 60_000, "", limits)[0] is CRITICAL
    assert judge("delay_p95", 25_000, "", limits) == (
        WARN,
        "delay of 95 % of the packets up to 25 ms, a warning from 20 ms",
    )
    assert judge("jitter", 1e9, "", Thresholds())[0] is OK
    assert judge("clock", 7_300, "", Thresholds(clock_warn_ms=5)) == (
        WARN,
        "clocks differ by 7.3 ms at least, a warning from 5 ms",
    )


@pytest.mark.parametrize(
    ("mbps", "usual_mbps", "status"), [(61, 100, OK), (59, 100, WARN), (1.2, 100, CRITICAL), (1.2, None, OK)]
)
def test_a_bandwidth_is_bad_beside_that_of_the_peers(
    mbps: float, usual_mbps: float | None, status: Status
) -> None:
    assert judge("bandwidth", 1e6 * mbps, "", USUAL, usual_mbps and 1e6 * usual_mbps)[0] is status
