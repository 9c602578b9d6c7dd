"""`rmx why` over a real leader: the decision as it was taken, whatever happens later, and whoever leads."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.core.jobs import events as ev
from rm.core.model.job import JobState
from tests import builders
from tests.unit.test_service import ENDED, House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.leader.stop()


def test_a_started_job_is_explained_by_the_decision_that_was_taken(house: House) -> None:
    for name in ("h1", "h2", "h3"):
        house.do(ev.HostAdded(builders.host(name, cpus=2)), ev.HostUp(name, "boot", "1"))
    house.do(ev.JobSubmitted(1, builders.spec(cpus_per_task=2)))
    house.do(ev.JobSubmitted(2, builders.spec(cpus_per_task=2)))
    told = asyncio.run(house.service.reading.why(2))
    assert [v.host for v in told["verdicts"] if v.refused is None] == ["h2"]
    assert [(v.host, v.refused.code) for v in told["verdicts"] if v.refused] == [("h1", "Resources")]
    assert (told["choice"].refused_hosts, told["choice"].passed_over_hosts) == (1, 1)
    house.do(ev.TasksStarted(1, 1, "h1", 5, (0,)))
    house.do(ENDED)  # there is room on h1 now
    house.do(ev.HostDown("h3", "gone"))
    assert asyncio.run(house.service.reading.why(2))["choice"] == told["choice"]
    assert house.store.choice(2) == told["choice"]  # for a restart, and for another leader
    house.do(ev.TasksStarted(2, 1, "h2", 5, (0,)))
    house.do(ev.TaskExited(2, 1, "h2", 0, 0, 0, 5, 6))
    ended = asyncio.run(house.service.reading.why(2))
    assert ended["state"] is JobState.COMPLETED
    assert (ended["choice"], ended["verdicts"]) == (told["choice"], told["verdicts"])


def test_of_a_job_that_was_never_placed_nothing_is_recorded(house: House) -> None:
    house.do(ev.JobSubmitted(1, builders.spec()))
    house.do(ev.CancelRequested(1, "alice"))
    told = asyncio.run(house.service.reading.why(1))
    assert (told["choice"], told["verdicts"]) == (None, [])


def test_a_waiting_job_knows_who_is_ahead_of_it(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1", cpus=2)), ev.HostUp("h1", "boot", "1"))
    for number in (1, 2, 3):
        house.do(ev.JobSubmitted(number, builders.spec(cpus_per_task=2)))
    place = asyncio.run(house.service.reading.why(3))["queue_position"]
    assert (place.position, [job.id for job in place.ahead]) == (2, [2])
    house.do(ev.HoldRequested(2, "alice"))
    assert asyncio.run(house.service.reading.why(3))["queue_position"].position == 1
    assert asyncio.run(house.service.reading.why(2))["queue_position"] is None
    assert "queue_position" not in asyncio.run(house.service.reading.why(1))


def test_an_element_without_a_job_of_its_own_is_explained_by_itself(house: House) -> None:
    """What keeps the others of its array from starting says nothing of one that is held, or was cancelled."""
    house.do(ev.HostAdded(builders.host("h1", cpus=8)), ev.HostUp("h1", "boot", "1"))
    house.do(ev.JobSubmitted(1, builders.spec(array="0-9%2")))
    house.do(ev.HoldRequested(1, "alice", "5"), ev.CancelRequested(1, "alice", "7-8"))

    def why(task: int) -> tuple[str, list[tuple[str, str]], bool]:
        told = asyncio.run(house.service.reading.why(1, str(task)))
        reasons = [(reason.code.value, reason.message) for reason in told["reasons"]]
        return told["state"].value, reasons, told.get("queue_position") is not None

    limit = "2 elements of job array 1 run, and at most 2 may at a time"
    assert why(4) == ("PENDING", [("JobArrayTaskLimit", limit)], True)
    state, reasons, in_queue = why(5)
    assert (state, reasons[0], in_queue) == (
        "PENDING",
        ("JobHeldUser", "held; release it with rmx release 1_5"),
        False,
    )
    assert why(7) == ("CANCELLED", [("Cancelled", "cancelled by alice")], False)
    assert asyncio.run(house.service.reading.why(1, "0"))["choice"] is not None


def test_an_element_that_waited_in_vain_says_for_what(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1", cpus=8)), ev.HostUp("h1", "boot", "1"))
    house.do(ev.JobSubmitted(1, builders.spec(array="0-1")), ev.HoldRequested(1, "alice", "1"))
    house.do(ev.JobSubmitted(10, builders.spec(array="0-1", dependency="aftercorr:1")))
    first = asyncio.run(house.service.reading.described(1, "0")).job
    house.do(
        ev.TasksStarted(first.id, first.attempt, "h1", 5, (0,)),
        ev.TaskExited(first.id, first.attempt, "h1", 0, 1, 0, 5, 6),
    )
    waits = asyncio.run(house.service.reading.why(10, "1"))
    assert [(link.kind, link.awaited, link.tasks) for link in waits["chain"].links] == [("aftercorr", 1, "1")]
    gone = asyncio.run(house.service.reading.why(10, "0"))
    never = "aftercorr:1_0 will never be fulfilled: job 1_0 did not complete"
    assert (gone["state"], [reason.message for reason in gone["reasons"]]) == (JobState.CANCELLED, [never])
