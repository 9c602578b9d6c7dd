"""When a result that waits for an archive is sent, and when it is given up."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.monitoring.archive import Archive, Queue, Waiting
from rm.core.monitoring.outcome import Outcome
from tests.archived import outcome


def test_a_policy_counts_as_pschedulers() -> None:
    archive = Archive("x", "http://x", retry_policy=((1, 10), (4, 60), (5, 3_600)))
    assert [archive.wait_us(n) for n in range(11)] == [10, *[60] * 4, *[3_600] * 5, None]


def test_a_result_waits_as_the_policy_says_and_is_given_up_at_its_end() -> None:
    queue = Queue(Archive("x", "http://x", retry_policy=((1, 10), (1, 60))))
    queue.put(outcome(), 100)
    for now_us, wait_us in ((100, 10), (110, 60)):
        waiting = queue.next(now_us)
        assert isinstance(waiting, Waiting)
        queue.failed(waiting, now_us, True)
        assert queue.next(now_us) == wait_us
    waiting = queue.next(170)
    assert isinstance(waiting, Waiting)
    queue.failed(waiting, 170, True)
    assert (len(queue), queue.dropped, queue.next(170)) == (0, 1, None)


def test_the_queue_is_bounded_and_what_is_too_old_goes() -> None:
    queue = Queue(Archive("x", "http://x", queue=2, ttl_us=50))
    for at_us in (1, 2, 3):
        queue.put(outcome(at_us=at_us), at_us)
    first = queue.next(4)
    assert isinstance(first, Waiting)
    assert (first.outcome.begun_us, queue.dropped) == (2, 1)
    assert (queue.next(53), queue.dropped) == (None, 2)


class Listed:
    """The queue as its description says, of which each step looks at all that waits."""

    def __init__(self, archive: Archive) -> None:
        self.archive, self.waiting, self.dropped = archive, list[Waiting](), 0

    def put(self, result: Outcome, now_us: int) -> None:
        self.waiting.append(Waiting(result, now_us))
        self.shorten()

    def shorten(self) -> None:
        while len(self.waiting) > self.archive.queue:
            del self.waiting[0]
            self.dropped += 1

    def next(self, now_us: int) -> Waiting | int | None:
        fresh = [one for one in self.waiting if one.outcome.ended_us + self.archive.ttl_us > now_us]
        self.dropped += len(self.waiting) - len(fresh)
        self.waiting = fresh
        first = min(fresh, key=lambda one: one.due_us, default=None)
        if first is None or first.due_us > now_us:
            return None if first is None else first.due_us - now_us
        self.waiting.remove(first)
        return first

    def failed(self, one: Waiting, now_us: int) -> None:
        wait_us = self.archive.wait_us(one.attempts)
        if wait_us is None:
            self.dropped += 1
        else:
            self.waiting.insert(0, replace(one, due_us=now_us + wait_us, attempts=one.attempts + 1))
            self.shorten()


@given(st.lists(st.tuples(st.sampled_from("pptfF"), st.integers(0, 20)), max_size=60))
def test_results_come_as_from_a_list(steps: list[tuple[str, int]]) -> None:
    archive = Archive("x", "http://x", queue=4, ttl_us=60, retry_policy=((2, 10), (1, 30)))
    queue, listed, now_us = Queue(archive), Listed(archive), 0
    for step, (kind, wait_us) in enumerate(steps):
        now_us += wait_us
        if kind == "p":
            result = outcome(mesh=f"m{step}", at_us=now_us - wait_us % 3)
            queue.put(result, now_us)
            listed.put(result, now_us)
            continue
        found, expected = queue.next(now_us), listed.next(now_us)
        if isinstance(found, Waiting) and isinstance(expected, Waiting):
            assert (found.outcome, found.attempts) == (expected.outcome, expected.attempts)
            if kind != "t":
                queue.failed(found, now_us, True)
                listed.failed(expected, now_us)
        else:
            assert found == expected
        assert (len(queue), queue.dropped) == (len(listed.waiting), listed.dropped)


def test_to_take_a_result_is_quick_however_many_wait() -> None:
    queue, result = Queue(Archive("x", "http://x", queue=100_000, queue_mib=10_000, ttl_us=10**9)), outcome()
    began_s = time.process_time()
    for now_us in range(100_000):
        queue.put(result, now_us)
    taken = 0
    while isinstance(waiting := queue.next(200_000), Waiting):
        taken += 1
        if waiting.attempts == 0 and taken % 2:
            queue.failed(waiting, 0, True)
    assert (taken, queue.dropped, len(queue)) == (100_000, 0, 50_000)
    assert time.process_time() - began_s < 60  # it took half an hour


def test_the_queue_is_bounded_by_what_it_takes_of_memory() -> None:
    queue = Queue(Archive("x", "http://x", queue_mib=1))
    long = {"histogram": tuple((delay_us, 1) for delay_us in range(1_000))}
    for at_us in range(1, 31):
        queue.put(replace(outcome(at_us=at_us), found=long), at_us)
    kept = len(queue)
    assert 2 < kept < 20
    assert queue.dropped == 30 - kept
    first = queue.next(40)
    assert isinstance(first, Waiting)
    assert first.outcome.begun_us == 31 - kept, "the oldest went"
    queue.failed(first, 40, True)
    assert len(queue) == kept
    while isinstance(found := queue.next(10**12), Waiting):
        assert found.size_bytes > 0
    for at_us in range(1_000):
        queue.put(outcome(at_us=at_us), at_us)
    assert len(queue) == 1_000, "short ones take little"


@pytest.mark.parametrize(
    ("runs", "taken"), [("succeeded", [""]), ("failed", ["no"]), ("all", ["", "no"])], ids=str
)
def test_an_archive_takes_its_runs_of_its_meshes(runs: str, taken: list[str]) -> None:
    archive = Archive("x", "http://x", runs=runs, meshes=("all",))
    some = [outcome(), outcome(failed="no"), outcome("other"), outcome("other", "no")]
    assert [o.failed for o in some if archive.takes(o)] == taken
