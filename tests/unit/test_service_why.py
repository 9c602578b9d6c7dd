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
