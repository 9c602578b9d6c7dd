"""Who tests a host alone, and who beside others: nobody waits for ever, and nobody is passed over."""

import threading

from rm.daemon.monitoring.bookings import Bookings
from tests.agent_process import until
from tests.fakes import PATIENCE_S


def begin(bookings: Bookings, a: str, b: str, shared: bool) -> tuple[threading.Event, threading.Event]:
    """A test in another thread: when it has begun, and what lets it end."""
    begun, over = threading.Event(), threading.Event()

    def test() -> None:
        with bookings.both(a, b, shared=shared):
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
