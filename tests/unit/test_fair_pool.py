"""Threads that no host and no user can have all of."""

import threading
from collections.abc import Callable

import pytest

from rm.daemon.fair_pool import FairPool
from tests.fakes import PATIENCE_S


class Works:
    """Works that begin when they may, say so, and go on until they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self.free = threading.Event()

    def named(self, name: str, waits: bool = True) -> Callable[[], None]:
        def work() -> None:
            with self.changed:
                self.begun.append(name)
                self.changed.notify_all()
            if waits:
                self.free.wait(PATIENCE_S)

        return work

    def until(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, PATIENCE_S), self.begun


@pytest.mark.parametrize("greedy", [("h1", "ann"), ("h1", ""), ("", "ann")])
def test_others_begin_while_one_host_or_user_wants_all(greedy: tuple[str, str]) -> None:
    pool, works = FairPool(4, 2, 1, "test"), Works()
    for number in range(10):
        host, user = greedy[0] or f"x{number}", greedy[1] or f"u{number}"
        pool.submit(host, user, works.named("greedy"))
    works.until(2)
    for number in range(2):
        pool.submit(f"h{number + 2}", f"b{number}", works.named("honest"))
    works.until(4)
    assert sorted(works.begun) == ["greedy", "greedy", "honest", "honest"]
    works.free.set()
    works.until(12)
    pool.close()


def test_a_single_user_has_all_but_what_is_kept_and_goes_on_in_order() -> None:
    pool, works = FairPool(1, 0, 1, "test"), Works()
    for number in range(5):
        pool.submit("h", "ann", works.named(str(number), waits=False))
    works.until(5)
    assert works.begun == ["0", "1", "2", "3", "4"]
    pool.close()


def test_a_work_that_fails_gives_its_thread_back(caplog: pytest.LogCaptureFixture) -> None:
    pool, works = FairPool(1, 0, 1, "test"), Works()
    pool.submit("h", "ann", lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    pool.submit("h", "ann", works.named("next", waits=False))
    works.until(1)
    assert "work for h of ann failed" in caplog.text
    pool.close()
    pool.submit("h", "ann", works.named("late"))
    assert works.begun == ["next"]
