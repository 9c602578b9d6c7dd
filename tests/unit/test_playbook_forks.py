"""The threads that work on hosts: so many at a time, in order, and none that is not needed."""

import subprocess
import sys
import threading
from functools import partial

from rm.adapters.playbook.forks import Forks

PATIENCE_S = 60.0


def test_so_many_are_at_work_at_a_time_and_all_gets_done() -> None:
    begun, gate = threading.Semaphore(0), threading.Event()
    done: list[int] = []

    def work(number: int) -> None:
        begun.release()
        gate.wait(PATIENCE_S)
        done.append(number)

    with Forks(3) as forks:
        for number in range(10):
            forks.do(partial(work, number))
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE_S)
        assert not begun.acquire(blocking=False)
        gate.set()
    assert sorted(done) == list(range(10))


def test_no_thread_is_begun_before_there_is_work_for_it() -> None:
    names: list[str] = []
    before = threading.active_count()
    with Forks(64) as forks:
        assert threading.active_count() == before
        forks.do(lambda: names.append(threading.current_thread().name))
        assert threading.active_count() <= before + 1
    assert names == ["playbook_0"]


def test_what_is_dropped_is_not_begun() -> None:
    begun, gate = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        begun.set()
        gate.wait(PATIENCE_S)
        done.append("first")

    with Forks(1) as forks:
        forks.do(first)
        assert begun.wait(PATIENCE_S)
        forks.do(lambda: done.append("second"))
        forks.drop()
        gate.set()
    assert done == ["first"]


def test_a_run_loads_no_logging() -> None:
    program = "import sys, rm.adapters.playbook.run; sys.exit('logging' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
