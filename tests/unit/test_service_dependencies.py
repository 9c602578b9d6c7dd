"""Dependencies over a real leader and a store: which jobs may be named, and what is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.chain import Chain
from rm.core.model.asked.dependency import Standing
from rm.core.model.job import JobState
from rm.core.model.reasons import ReasonCode
from rm.core.scheduling.cycle import Cycle
from rm.errors import UsageError
from rm.units import MINUTE_US
from tests import builders
from tests.fakes import PATIENCE_S
from tests.unit.test_service import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.leader.stop()


def submit(house: House, dependency: str = "", **spec: object) -> int:
    made = builders.spec(dependency=dependency, **spec)  # type: ignore[arg-type]
    return asyncio.run(house.service.submissions.submit([made]))[0]


def end(house: House, job: int, code: int) -> None:
    house.do(ev.TasksStarted(job, 1, "h1", 5, (0,)), ev.TaskExited(job, 1, "h1", 0, code, 0, 5, 6))


def state(house: House, job: int) -> JobState:
    return asyncio.run(house.service.reading.job(job)).state


def test_an_unknown_job_and_one_that_the_caller_may_not_know_are_refused_alike(house: House) -> None:
    submit(house)
    with pytest.raises(UsageError, match=r"Job 'x' depends on job 7, which there is not\."):
        submit(house, "afterok:1:7", name="x")
    with pytest.raises(UsageError, match=r"Job 'job' depends on job 1, which there is not\."):
        asyncio.run(
            house.service.submissions.submit(
                [builders.spec(dependency="after:1")], "", lambda user: user == "bob"
            )
        )
    with pytest.raises(UsageError, match=r"Job 'job' depends on job 2, which there is not\."):  # itself
        submit(house, "afterok:2")
    assert submit(house, "afterok:1") == 2


def test_elements_that_there_are_not_are_refused(house: House) -> None:
    submit(house)
    array = submit(house, array="0-3")
    for dependency, more, said in (
        ("afterok:1_2", "", r"depends on afterok:1_2, and job 1 is no job array\."),
        (f"afterok:{array}_[3-5]", "", rf"and job array {array} has no element 4-5\."),
        ("aftercorr:1", "0-3", r"and job 1 is no job array\."),
        (f"aftercorr:{array}", "2-6", rf"and job array {array} has no element 4-6\."),
    ):
        with pytest.raises(UsageError, match=said):
            submit(house, dependency, array=more)
    assert state(house, submit(house, f"aftercorr:{array}", array="1-3")) is JobState.PENDING
    assert state(house, submit(house, f"afterok:{array}_[1-3]")) is JobState.PENDING


def test_jobs_that_have_left_the_memory_decide_as_the_store_remembers_them(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1", cpus=8)))
    good, bad, *others = (submit(house) for _ in range(4))
    for job in (good, bad, *others):
        end(house, job, 3 if job == bad else 0)
    house.leader.ask(lambda cycle, now_us: cycle.state.forget_finished(over=0)).result(PATIENCE_S)
    kept = house.leader.ask(lambda cycle, now_us: set(cycle.state.jobs)).result(PATIENCE_S)
    assert kept == set(others)  # the older half has gone
    assert state(house, submit(house, f"afterok:{good}")) is JobState.CONFIGURING
    never = submit(house, f"afterok:{bad}")
    assert state(house, never) is JobState.CANCELLED
    assert state(house, submit(house, f"afternotok:{bad}")) is JobState.CONFIGURING


@pytest.mark.parametrize("ended", [False, True])
def test_a_delay_counts_from_the_start_of_elements_that_have_left_the_memory(
    house: House, ended: bool
) -> None:
    house.do(ev.HostAdded(builders.host("h1", cpus=3)), ev.HostUp("h1", "boot", "1"))
    array = submit(house, array="0-2")

    def elements(cycle: Cycle, now_us: int) -> dict[int, int]:
        return dict(cycle.state.elements[array])

    own = house.leader.ask(elements).result(PATIENCE_S)
    placed_us = house.leader.ask(lambda cycle, now_us: cycle.state.jobs[own[0]].placed_us).result(PATIENCE_S)
    house.clock.us += 1_000
    for task in (0, 1, 2) if ended else (0, 1):
        job, started_us = own[task], placed_us + 50 + task
        house.do(
            ev.TasksStarted(job, 1, "h1", started_us, (0,)),
            ev.TaskExited(job, 1, "h1", 0, 0, 0, started_us, placed_us + 90 + task),
        )

    def forget(cycle: Cycle, now_us: int) -> set[int]:
        for job in [*cycle.state.jobs.values()][::-1]:  # elements before their array
            if job.state.final:
                cycle.state.forget(job)
        return set(cycle.state.jobs)

    left = house.leader.ask(forget).result(PATIENCE_S)
    assert own[0] not in left
    assert (array in left) is (not ended)
    behind = submit(house, f"after:{array}_[0-1]+1,afterany:{array}_2")
    job = asyncio.run(house.service.reading.job(behind))
    assert job.dependencies[0].from_us == placed_us + 51 + MINUTE_US
    assert job.dependencies[1].standing is (Standing.FULFILLED if ended else Standing.UNFULFILLED)


def test_a_dry_run_says_for_which_job_it_would_wait(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h1", cpus=8)), ev.HostUp("h1", "boot", "1"))
    first = submit(house, name="a")
    for dependency, said in ((f"afterok:{first}", f"waits for afterok:{first}"), ("singleton", "singleton")):
        plan = asyncio.run(house.service.submissions.plan(builders.spec(dependency=dependency, name="a")))
        assert plan["placement"] is None
        assert plan["reasons"][0].code is ReasonCode.DEPENDENCY
        assert said in plan["reasons"][0].message
    plan = asyncio.run(
        house.service.submissions.plan(builders.spec(dependency=f"after:{first}?singleton", name="b"))
    )
    assert plan["placement"] is not None


def test_why_has_the_chain_in_front_of_a_job(house: House) -> None:
    first = submit(house, name="a")
    second = submit(house, f"afterok:{first}")
    third = submit(house, f"afterany:{second}")
    why = asyncio.run(house.service.reading.why(third))
    assert [(link.job, link.kind, link.awaited, link.state) for link in why["chain"].links] == [
        (third, "afterany", second, JobState.PENDING),
        (second, "afterok", first, JobState.PENDING),
    ]
    assert why["queue_position"] is None
    assert asyncio.run(house.service.reading.why(first))["chain"] == Chain()
    listed = {job.id: job.reason for job in asyncio.run(house.service.reading.queue(user="", limit=0))}
    assert str(listed[third]) == f"(Dependency) waits for afterany:{second}"
