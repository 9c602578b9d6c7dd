"""Who tests a host alone, and who beside others: nobody waits for ever, and nobody is passed over."""

import threading

from rm.daemon.monitoring.bookings import NONE, Bookings, Crossing
from tests.agent_process import until
from tests.fakes import PATIENCE_S


def begin(
    bookings: Bookings, a: str, b: str, shared: bool, crossing: Crossing = NONE
) -> tuple[threading.Event, threading.Event]:
    """A test in another thread: when it has begun, and what lets it end."""
    begun, over = threading.Event(), threading.Event()

    def test() -> None:
        with bookings.both(a, b, shared, crossing):
            begun.set()
            assert over.wait(PATIENCE_S)

    threading.Thread(target=test, daemon=True).start()
    return begun, over


def until_wait(bookings: Bookings, count: int) -> None:
    until(lambda: len(bookings._freed._waiters) == count, f"{count} wait")  # type: ignore[attr-defined]


def test_tests_that_share_a_host_run_side_by_side_and_others_alone() -> None:
    bookings = Bookings()
    (first, end_first), (second, end_second) = (begin(bookings, "a", b, True) for b in "bc")
    assert first.wait(PATIENCE_S)
    assert second.wait(PATIENCE_S)
    alone, end_alone = begin(bookings, "a", "d", False)
    until_wait(bookings, 1)
    waiting, end_waiting = begin(bookings, "b", "a", True)  # it does not overtake the one that waits
    until_wait(bookings, 2)
    elsewhere, end_elsewhere = begin(bookings, "x", "y", False)
    assert elsewhere.wait(PATIENCE_S)
    for over in (end_first, end_second, end_elsewhere):
        over.set()
    assert alone.wait(PATIENCE_S)
    assert not waiting.is_set()
    end_alone.set()
    assert waiting.wait(PATIENCE_S)
    end_waiting.set()


def over(*leaves: str, gbps: int = 5) -> Crossing:
    return Crossing(frozenset(leaves), gbps * 10**9, 10 * 10**9)


def test_as_much_leaves_a_leaf_as_one_uplink_carries_and_who_waits_for_it_keeps_no_host() -> None:
    bookings = Bookings()
    first, end_first = begin(bookings, "a", "x", False, over("left", "right"))
    second, end_second = begin(bookings, "b", "y", False, over("left", "middle"))
    assert first.wait(PATIENCE_S)
    assert second.wait(PATIENCE_S)
    third, end_third = begin(bookings, "c", "z", False, over("left", "right"))
    until_wait(bookings, 1)
    inside, end_inside = begin(bookings, "c", "d", False)  # below one leaf
    assert inside.wait(PATIENCE_S)
    end_inside.set()
    end_second.set()
    assert third.wait(PATIENCE_S)
    end_first.set()
    end_third.set()


def test_small_tests_that_come_later_do_not_keep_uplinks_from_one_that_fills_them() -> None:
    bookings = Bookings()
    small, end_small = begin(bookings, "a", "x", False, over("left", "right", gbps=1))
    assert small.wait(PATIENCE_S)
    full, end_full = begin(bookings, "b", "y", False, over("left", "right", gbps=10))
    until_wait(bookings, 1)
    later, end_later = begin(bookings, "c", "z", False, over("left", gbps=1))
    until_wait(bookings, 2)
    elsewhere, end_elsewhere = begin(bookings, "d", "e", False, over("middle", gbps=10))
    assert elsewhere.wait(PATIENCE_S)
    end_small.set()
    assert full.wait(PATIENCE_S)
    assert not later.is_set()
    end_full.set()
    assert later.wait(PATIENCE_S)
    end_later.set()
    end_elsewhere.set()
