"""What a host keeps of an attempt comes home before the host forgets it, and who ended is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.adapters.store.log_directory import log_path
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard
from rm.core.model.logs import LogName
from tests.executing import House, executing, exit_of, text
from tests.fakes import said


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    yield from executing(tmp_path)


def test_a_host_that_cannot_take_note_of_the_end_is_asked_again(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 2, "h1", (0,), errors=False))
    house.hosts.take("logs").answer(**text("hello\n"))
    house.hosts.take("discard").refuse("no-space")
    house.hosts.take("discard").answer()
    house.settled(1)


def test_logs_come_home_before_the_host_forgets(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 2, "h1", (0, 1)))
    for rank, data in ((0, "hello\n"), (1, "")):
        out = house.hosts.take("logs")
        assert (out.args["rank"], out.args["stream"], out.args["offset"]) == (rank, "out", 0)
        out.answer(**text(data))
        house.hosts.take("logs").refuse("no-log")  # the user's own file for errors is gone
    assert house.inbox.of(ev.ActionSettled) == []
    house.hosts.take("discard").answer()
    house.settled(1)
    assert log_path(house.logs, LogName(1, 2, 0, "out")).read_text() == "hello\n"
    assert [p.name for p in (house.logs / "1.2").iterdir()] == ["0.out"]


def test_a_host_is_not_asked_for_files_that_the_job_cannot_have(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,), errors=False))
    house.hosts.take("logs").answer(**text("hello\n"))
    house.hosts.take("discard").answer()
    house.settled(1)
    assert log_path(house.logs, LogName(1, 1, 0, "out")).read_text() == "hello\n"


def test_only_the_newest_part_of_a_long_log_comes_home(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,)))
    house.hosts.take("logs").answer(**text("x" * 10, size=5_000))
    tail = house.hosts.take("logs")
    assert tail.args["offset"] == 4_000
    tail.answer(**text("tail", 5_000, 5_000))
    house.hosts.take("logs").answer(**text("", 5_000, 5_000))
    house.hosts.take("logs").answer(**text(""))
    house.hosts.take("discard").answer()
    house.settled(1)
    assert log_path(house.logs, LogName(1, 1, 0, "out")).read_text() == "tail"


@pytest.mark.parametrize("exit_first", [True, False])
def test_a_collection_waits_for_the_exit_of_what_still_runs(house: House, exit_first: bool) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", ()))
    discard = house.hosts.take("discard")
    if exit_first:  # the exit comes between the agent's refusal and our hearing of it
        house.executor.on_event("h1", exit_of(1))
        discard.refuse("still-running")
    else:
        discard.refuse("still-running")
        house.executor.on_event("h1", exit_of(2))  # another job's
        house.executor.on_event("h1", exit_of(1))
    house.hosts.take("discard").answer()
    house.settled(1)


@pytest.mark.parametrize("code", ["still-running", "no-space", "spool"])
def test_a_discard_that_cannot_be_now_is_repeated(house: House, code: str) -> None:
    house.connect()
    house.submit(Discard(1, 1, "h1"))
    house.hosts.take("discard").refuse(code)
    house.hosts.take("discard").answer()
    house.settled(1)


def test_a_collection_is_never_under_way_twice(house: House) -> None:
    house.connect()
    house.submit(Collect(1, 1, "h1", (0,)))
    log = house.hosts.take("logs")
    house.executor.repeat_open("h1")
    house.executor.on_event("h1", exit_of(1))
    log.refuse("no-log")
    house.hosts.take("logs").refuse("no-log")
    house.hosts.take("discard").answer()
    house.settled(1)
    assert [c.op for c in house.hosts.made].count("logs") == 2


def test_an_exit_without_a_record_is_a_loss(house: House) -> None:
    house.executor.on_event("h1", exit_of(1, code=None, signal=None, ended_us=None, why="killed"))
    house.executor.on_event("h1", exit_of(1, code=3))
    assert house.inbox.items[0] == ev.TasksLost(1, 1, "h1", (0,), "killed")
    assert house.inbox.items[1] == ev.TaskExited(1, 1, "h1", 0, 3, 0, 1, 2)


def test_times_of_a_host_are_told_on_our_clock(house: House) -> None:
    house.hosts.offsets_us["h1"] = 1_000_000
    house.executor.on_event("h1", said("started", job=1, attempt=1, rank=2, pid=9, started_us=1_000_005))
    items = [[2, 0, 0, 100, 0, None]]
    house.executor.on_event("h1", said("iterations", job=1, attempt=1, items=items))
    assert house.inbox.items == [ev.TasksStarted(1, 1, "h1", 5, (2,))]
    assert len(house.iterations) == 1
