"""The accounting of steps on its way from hosts, which lie and fall silent, into the database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rm.core.model.job import Task
from rm.core.model.job_step import STEPS_MOST, JobStep, StepName
from rm.daemon.execution.step_book import PART_BYTES, RECORD_BYTES, StepBook
from rm.errors import StoreUnavailable
from rm.protocol.codes import AgentError
from tests.fakes import PATIENCE_S, FakeHosts, ManualClock


class Book:
    def __init__(self) -> None:
        self.hosts = FakeHosts()
        self.kept: dict[StepName, JobStep] = {}
        self.trouble: Exception | None = None
        self.book = StepBook(
            hosts=self.hosts,
            clock=ManualClock(9_000_000),
            placed=lambda host, job, attempt, rank: Task(rank, host) if (host, rank) == ("h1", 0) else None,
            keep=self.keep,
        )

    def keep(self, steps: tuple[JobStep, ...]) -> Future[Any]:
        done: Future[Any] = Future()
        if self.trouble is not None:
            done.set_exception(self.trouble)
        else:
            self.kept.update((step.name, step) for step in steps)
            done.set_result(None)
        return done


def line(step: int, **more: Any) -> dict[str, Any]:
    given = {"step": step, "name": "train.py", "hosts": "h[1-2]", "hosts_count": 2, "tasks": 4, "cpus": 8}
    return {**given, "started_us": 5, **more}


def page(*lines: dict[str, Any], offset: int, more: bool = False) -> dict[str, Any]:
    return {"steps": list(lines), "offset": offset, "more": more}


def test_what_a_host_recorded_is_fetched_once_and_the_newest_counts() -> None:
    house = Book()
    house.book.told("h1", 7, 1)
    ended = line(0, ended_us=6, code=3, signal=0)
    house.hosts.take("job-steps").answer(**page(line(0), ended, line(1), offset=100))
    name = StepName(7, 1, 0)
    assert house.kept[name] == JobStep(name, "train.py", "h[1-2]", 2, 4, 8, 5, 6, 3, 0)
    assert house.kept[StepName(7, 1, 1)].ended_us is None
    house.book.told("h1", 7, 1)
    again = house.hosts.take("job-steps")
    assert again.args["offset"] == 100
    again.answer(**page(line(1, ended_us=9, why="cancelled", code=0, signal=15), offset=200))
    assert house.kept[StepName(7, 1, 1)].why == "cancelled"


def test_only_the_first_host_of_the_attempt_is_believed() -> None:
    house = Book()
    house.book.told("h2", 7, 1)
    assert house.hosts.untaken("job-steps") == []


def test_news_during_a_question_is_asked_for_after_it() -> None:
    house = Book()
    house.book.told("h1", 7, 1)
    first = house.hosts.take("job-steps")
    for _ in range(3):
        house.book.told("h1", 7, 1)
    assert house.hosts.untaken("job-steps") == []
    first.answer(**page(line(0), offset=50, more=True))
    house.hosts.take("job-steps").answer(**page(offset=50))
    assert house.hosts.untaken("job-steps") == []


def test_what_was_not_kept_is_asked_for_again() -> None:
    house = Book()
    house.trouble = StoreUnavailable("The database is away.")
    house.book.told("h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(line(0), offset=50))
    house.trouble = None
    house.book.told("h1", 7, 1)
    again = house.hosts.take("job-steps")
    assert again.args["offset"] == 0
    again.refuse("no-such-attempt")
    house.book.told("h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(line(0), offset=50))
    assert list(house.kept) == [StepName(7, 1, 0)]


def test_a_host_whose_record_never_ends_is_not_asked_for_ever() -> None:
    house = Book()
    house.book.told("h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(line(STEPS_MOST), line(0), offset=0, more=True))
    assert (list(house.kept), house.hosts.untaken("job-steps")) == ([StepName(7, 1, 0)], [])
    house.book.told("h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(line(0), offset=1, more=True))
    assert house.hosts.untaken("job-steps") == []
    house.book.told("h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(offset=RECORD_BYTES, more=True))
    assert house.hosts.untaken("job-steps") == []


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("code", ["no-such-op", "no-such-attempt", "discarded"])
def test_an_older_agent_or_one_that_has_forgotten_holds_no_collection_up(
    beside: ThreadPoolExecutor, code: str
) -> None:
    house = Book()
    house.book.told("h3", 7, 1)  # not asked at once: it is not known to run there
    done = beside.submit(house.book.bring_home, "h1", 7, 1)
    house.hosts.take("job-steps").refuse(code)
    done.result(PATIENCE_S)


def test_a_collection_fetches_all_that_is_left_and_says_what_keeps_it(beside: ThreadPoolExecutor) -> None:
    house = Book()
    house.book.told("h3", 7, 1)  # not asked at once: it is not known to run there
    done = beside.submit(house.book.bring_home, "h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(line(0), offset=PART_BYTES, more=True))
    rest = house.hosts.take("job-steps")
    assert rest.args["offset"] == PART_BYTES
    rest.answer(**page(line(1), offset=PART_BYTES + 20))
    done.result(PATIENCE_S)
    assert [name.step for name in house.kept] == [0, 1]
    house.book.told("h3", 7, 1)
    house.trouble = StoreUnavailable("The database is away.")
    done = beside.submit(house.book.bring_home, "h1", 7, 1)
    house.hosts.take("job-steps").answer(**page(line(0), offset=10))
    with pytest.raises(StoreUnavailable):
        done.result(PATIENCE_S)
    done = beside.submit(house.book.bring_home, "h1", 7, 1)
    house.hosts.take("job-steps").refuse("stale-epoch")
    with pytest.raises(AgentError):
        done.result(PATIENCE_S)


def test_a_host_that_told_of_no_steps_is_not_asked_for_any() -> None:
    house = Book()
    house.book.bring_home("h1", 7, 1)
    assert house.hosts.untaken("job-steps") == []


def test_more_attempts_than_can_be_remembered_are_all_asked_for(
    monkeypatch: pytest.MonkeyPatch, beside: ThreadPoolExecutor
) -> None:
    monkeypatch.setattr("rm.daemon.execution.step_book.KNOWN", 2)
    house = Book()
    for job in (1, 2, 3):
        house.book.told("h3", job, 1)
    done = beside.submit(house.book.bring_home, "h1", 1, 1)
    house.hosts.take("job-steps").answer(**page(line(0), offset=10))
    done.result(PATIENCE_S)
    assert list(house.kept) == [StepName(1, 1, 0)]
