"""Job arrays over a real leader and a store: elements by their names, in memory or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rm.adapters.store.memory import MemoryStore
from rm.arrays import mask
from rm.core.jobs import events as ev
from rm.core.jobs.handlers import updating
from rm.core.jobs.lifecycle import Changes, IllegalTransition, Rules, apply
from rm.core.jobs.state import ClusterState
from rm.core.model.asked.array import Array
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.job import Job, JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle, Outcome
from rm.core.scheduling.engine import Policies
from rm.daemon.services.array_elements import PART, gone
from rm.daemon.services.reasons import Reasons, with_reason
from rm.errors import Conflict, ImpossibleRequest, NotFound, UsageError
from tests import builders
from tests.fakes import PATIENCE_S
from tests.rows import read_rows
from tests.unit.test_service import House

S = JobState


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    made.do(ev.HostAdded(builders.host("h1", cpus=2)))
    yield made
    made.leader.stop()


def submit(house: House, array: str, key: str = "") -> int:
    return asyncio.run(house.service.submissions.submit([builders.spec(array=array)], key))[0]


def element(house: House, array: int, task: int) -> Job:
    return asyncio.run(house.service.reading.described(array, str(task))).job


def end(house: House, array: int, task: int, code: int = 0) -> None:
    job = element(house, array, task)
    host = job.tasks[0].host
    house.do(
        ev.TasksStarted(job.id, job.attempt, host, 5, (0,)),
        ev.TaskExited(job.id, job.attempt, host, 0, code, 0, 5, 6),
    )


def forget(house: House) -> None:
    """Ended jobs leave the memory, elements first."""

    def work(cycle: Any, now_us: int) -> None:
        for job in sorted(cycle.state.jobs.values(), key=lambda job: job.array is not None):
            if job.state.final:
                cycle.state.forget(job)

    house.ask(work).result(PATIENCE_S)


def test_elements_are_found_whether_they_wait_run_or_have_ended(house: House) -> None:
    array = submit(house, "0-9")
    end(house, array, 0)
    ended, runs, waits = (element(house, array, task) for task in (0, 1, 7))
    assert [job.ref for job in (ended, runs, waits)] == [f"{array}_{n}" for n in (0, 1, 7)]
    assert [job.state for job in (ended, runs, waits)] == [S.COMPLETED, S.CONFIGURING, S.PENDING]
    with pytest.raises(NotFound, match="Element 10 of job array 1 does not exist"):
        element(house, array, 10)
    with pytest.raises(UsageError, match=r"1_\[2-3\] names 2 elements"):
        asyncio.run(house.service.reading.described(array, "2-3"))
    with pytest.raises(NotFound, match="is no job array"):
        asyncio.run(house.service.reading.described(ended.id, "2"))


def update(house: House, array: int, tasks: str, **fields: Any) -> Job:
    change = house.service.changes.update(array, "ann", JobUpdate(**fields), lambda user: True, False, tasks)
    return asyncio.run(change)


def test_an_element_that_waits_has_the_reason_of_its_array_unless_it_is_held(house: House) -> None:
    array = submit(house, "0-9%1")
    waits = element(house, array, 5).reason
    assert waits is not None
    assert waits.code is ReasonCode.ARRAY_LIMIT
    asyncio.run(house.service.changes.hold(array, "ann", "7"))
    held = element(house, array, 7).reason
    assert held is not None
    assert held.code is ReasonCode.HELD_USER


def test_elements_that_were_changed_alone_are_durable(house: House) -> None:
    array = submit(house, "0-999")
    update(house, array, f"3-{PART + 12}", time_limit_us=60_000_000)  # in two turns
    update(house, array, "5,7", comment="mine")
    kept = {job.array_task: job for job in house.store.load().jobs if job.array_job == array}
    assert [kept[task].spec.comment for task in (5, 6, 7)] == ["mine", "", "mine"]
    changed = [task for task, job in kept.items() if job.spec.time_limit_us == 60_000_000]
    assert sorted(task or 0 for task in changed) == list(range(3, PART + 13))
    assert [element(house, array, task).spec.time_limit_us for task in (2, 3)] == [None, 60_000_000]
    assert update(house, array, "", comment="all").array is not None
    assert {element(house, array, task).spec.comment for task in (5, 6, 999)} == {"all"}
    asyncio.run(house.service.changes.cancel(array, "ann", None, "5"))
    assert element(house, array, 5).state is S.CANCELLED


def test_a_change_of_elements_that_none_can_take_changes_nothing(house: House) -> None:
    array = submit(house, "0-4999")
    for tasks, fields, kind, said in (
        ("2-2000", {"comment": "c"}, IllegalTransition, "at most 1000 may"),
        ("4", {"cpus_per_task": 3}, ImpossibleRequest, "could never run"),
        ("5000", {"comment": "c"}, IllegalTransition, "has no element 5000"),
        ("4", {"dependency": f"afterok:{array}_4"}, IllegalTransition, "would wait for itself"),
    ):
        with pytest.raises(kind, match=said):
            update(house, array, tasks, **fields)
    single = asyncio.run(house.service.submissions.submit([builders.spec()], ""))[0]
    with pytest.raises(IllegalTransition, match="no job array"):
        update(house, single, "1", comment="c")
    assert element(house, array, 4).id == array


def test_the_elements_that_wait_by_themselves_are_few_enough_for_one_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the whole array goes through all of them, for seconds if they are many."""
    monkeypatch.setattr(updating, "OWN_MOST", 20)
    array = submit(house, "10-99")
    asyncio.run(house.service.changes.hold(array, "ann"))
    update(house, array, "20-34", comment="c")
    with pytest.raises(IllegalTransition, match="21 elements of job array 1 would wait as jobs of their own"):
        update(house, array, "40-45", comment="c")
    update(house, array, "20-34", comment="again")  # these do already

    async def at_once() -> list[Job | BaseException]:
        change = house.service.changes.update
        asked = (
            change(array, "ann", JobUpdate(comment="c"), lambda user: True, False, tasks)
            for tasks in ("50-52", "60-62", "70-72")
        )
        return await asyncio.gather(*asked, return_exceptions=True)

    refused = [one for one in asyncio.run(at_once()) if isinstance(one, IllegalTransition)]
    assert len(refused) == 2
    update(house, array, "", comment="all")


def test_a_submission_that_is_repeated_is_one_array(house: House) -> None:
    first = submit(house, "0-3", "key")
    for task in range(4):
        end(house, first, task)
    assert submit(house, "0-3", "key") == first


def test_whoever_waits_for_an_element_waits_until_it_has_ended(house: House) -> None:
    array = submit(house, "0-4")

    async def wait_for(tasks: str) -> Job:
        waiting = asyncio.create_task(house.service.reading.wait(array, PATIENCE_S, tasks))
        for task in (0, 1, 2, 3):
            await asyncio.to_thread(end, house, array, task, int(task == 3))
        return await waiting

    job = asyncio.run(wait_for("3"))
    assert (job.array_task, job.state, job.exit_code) == (3, S.FAILED, 1)


def test_what_failed_runs_again_also_when_it_has_left_the_memory(house: House) -> None:
    array = submit(house, "0-5")
    for task in range(6):
        end(house, array, task, int(task in (1, 4)))
    forget(house)
    assert asyncio.run(house.service.reading.job(array)).state is S.FAILED
    assert element(house, array, 4).exit_code == 1
    again = asyncio.run(house.service.changes.requeue(array, "alice", failed=True))
    assert again.array is not None
    assert (again.state, again.array.running, again.array.failed) == (S.RUNNING, "1,4", "")
    for task in (1, 4):
        end(house, array, task)
    assert asyncio.run(house.service.reading.job(array)).state is S.COMPLETED
    with pytest.raises(IllegalTransition, match="has no element that failed"):
        asyncio.run(house.service.changes.requeue(array, "alice", failed=True))


def test_one_element_that_has_left_the_memory_is_requeued_by_either_of_its_ids(house: House) -> None:
    array = submit(house, "0-1")
    for task in range(2):
        end(house, array, task)
    forget(house)
    number = element(house, array, 1).id
    assert asyncio.run(house.service.changes.requeue(number, "alice")).state is S.CONFIGURING
    end(house, array, 1)
    forget(house)
    asyncio.run(house.service.changes.requeue(array, "alice", "1"))
    assert element(house, array, 1).attempt == 3


def test_elements_are_held_and_cancelled_by_their_names(house: House) -> None:
    array = submit(house, "0-9")
    asyncio.run(house.service.changes.hold(array, "alice", "5-9"))
    record = asyncio.run(house.service.changes.cancel(array, "alice", None, "2-3"))
    assert record.array is not None
    assert (record.array.held, record.array.dropped) == ("5-9", "2-3")
    assert element(house, array, 3).state is S.CANCELLED
    assert element(house, array, 6).held
    with pytest.raises(Conflict, match=r"No element of 1_\[5-6\] runs"):
        asyncio.run(house.service.changes.cancel(array, "alice", 10, "5-6"))


def test_the_log_of_an_array_is_asked_for_by_element(house: House) -> None:
    array = submit(house, "3-4")

    async def read() -> None:
        async for _ in house.service.job_logs.read(array, 0, "out", 0, False):
            pass

    with pytest.raises(Conflict, match="job array: each of its elements has a log") as refused:
        asyncio.run(read())
    assert "1_3" in refused.value.hint


def test_many_elements_of_an_array_are_cancelled_in_parts_those_that_wait_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None that waits starts where the first part has left a host."""
    house.do(ev.HostAdded(builders.host("h2", cpus=450)), ev.HostUp("h2", "boot", "1"))
    array = submit(house, "0-999")
    assert element(house, array, 449).state is S.CONFIGURING
    waiting = asyncio.run(house.service.reading.job(array)).array.waiting  # type: ignore[union-attr]
    parts: list[str] = []
    step = Cycle.step

    def noted(cycle: Cycle, events: Sequence[ev.Event], now_us: int) -> Outcome:
        parts.extend(event.array_tasks for event in events if isinstance(event, ev.CancelRequested))
        return step(cycle, events, now_us)

    monkeypatch.setattr(Cycle, "step", noted)
    asyncio.run(house.service.changes.cancel(array, "alice", None))
    assert parts[0] == waiting
    assert [mask(part).bit_count() for part in parts[1:3]] == [PART, PART]
    assert sum(map(mask, parts)) == mask("0-999")
    record = asyncio.run(house.service.reading.job(array))
    assert record.array is not None
    assert (record.array.dropped, record.array.waiting) == (waiting, "")


def test_the_elements_of_all_arrays_of_a_user_are_cancelled_in_parts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.do(ev.HostAdded(builders.host("h2", cpus=598)), ev.HostUp("h2", "boot", "1"))
    arrays = [submit(house, "0-249"), submit(house, "0-99"), submit(house, "0-999")]
    listed = asyncio.run(
        house.service.reading.jobs(states=frozenset(), user="", name="", limit=0, everything=False)
    )
    last = asyncio.run(house.service.reading.job(arrays[2]))
    assert last.array is not None
    turns: list[int] = []
    step = Cycle.step

    def alive(cycle: Cycle, now_us: int) -> int:
        return sum(not job.state.final and job.array is None for job in cycle.state.jobs.values())

    def ended(array: Array | None, tasks: str) -> int:
        return 1 if array is None else (array.has("running") & (mask(tasks) if tasks else ~0)).bit_count()

    def noted(cycle: Cycle, events: Sequence[ev.Event], now_us: int) -> Outcome:
        asked = [event for event in events if isinstance(event, ev.CancelRequested)]
        turns.append(sum(ended(cycle.state.jobs[event.job].array, event.array_tasks) for event in asked))
        return step(cycle, events, now_us)

    monkeypatch.setattr(Cycle, "step", noted)
    assert house.leader.ask(alive).result(PATIENCE_S) == 600
    done = asyncio.run(house.service.changes.cancel_all([job.id for job in listed], "alice"))
    assert max(turns) <= PART
    assert not [job.ref for job in done if job.array is not None and job.array.waiting]
    assert [job.array.dropped for job in done if job.id == last.id and job.array] == [last.array.waiting]


def test_an_array_whose_last_free_elements_have_started_says_why_the_others_wait(house: House) -> None:
    house.do(ev.HostAdded(builders.host("h2", cpus=8)), ev.HostUp("h2", "boot", "1"))
    house.do(ev.JobSubmitted(1, builders.spec(array="0-2", hold=True)))
    house.do(
        ev.JobSubmitted(2, builders.spec(array="0-2", dependency="aftercorr:1", kill_on_invalid_dep=False))
    )
    house.do(ev.JobSubmitted(3, builders.spec(array="0-2", hold=True)))
    house.do(ev.ReleaseRequested(1, "alice"))
    end(house, 1, 0)
    end(house, 2, 0)
    house.do(ev.ReleaseRequested(3, "alice", "0"))
    end(house, 3, 0)

    def why(array: int) -> tuple[str, ReasonCode | None]:
        job = asyncio.run(house.service.reading.job(array))
        assert job.array is not None
        return job.array.waiting, job.reason.code if job.reason else None

    assert why(2) == ("1-2", ReasonCode.DEPENDENCY)
    assert why(3) == ("1-2", ReasonCode.HELD_USER)
    end(house, 1, 1, code=1)
    end(house, 1, 2)
    end(house, 2, 2)
    assert why(2) == ("1", ReasonCode.DEPENDENCY_NEVER)


def test_who_cancels_what_waits_does_not_end_elements_that_run(house: House) -> None:
    house.do(ev.HostUp("h1", "boot", "1"))
    array = submit(house, "0-5")

    def cancel(state: JobState) -> Array:
        chosen = frozenset((state,))
        listed = asyncio.run(
            house.service.reading.jobs(states=chosen, user="", name="", limit=0, everything=False)
        )
        asyncio.run(house.service.changes.cancel_all([job.id for job in listed], "alice", chosen))
        found = asyncio.run(house.service.reading.job(array)).array
        assert found is not None
        return found

    assert cancel(S.FAILED).waiting == "2-5"
    assert cancel(S.CONFIGURING).waiting == "2-5", "only those that were placed"
    assert [element(house, array, task).state for task in (0, 1)] == [S.COMPLETING, S.COMPLETING]
    later = submit(house, "0-5")
    for task in (0, 1):
        end(house, array, task, code=1)
    assert [element(house, array, task).state for task in (2, 3)] == [S.CONFIGURING, S.CONFIGURING]
    assert (cancel(S.PENDING).dropped, cancel(S.PENDING).running) == ("4-5", "2-3")
    assert [element(house, array, task).state for task in (2, 3)] == [S.CONFIGURING, S.CONFIGURING]
    assert asyncio.run(house.service.reading.job(later)).state is S.CANCELLED


def test_why_elements_were_cancelled_is_not_said_of_those_that_wait(house: House) -> None:
    house.do(ev.HostUp("h1", "boot", "1"))
    array = submit(house, "0-5")
    house.do(ev.CancelRequested(array, "alice", "2-5"), ev.HostDrained("h1", "ann", "disk"))
    house.do(ev.RequeueRequested(array, "alice", "0-1"))
    for task in (0, 1):
        end(house, array, task)
    record = asyncio.run(house.service.reading.job(array))
    assert (record.array and record.array.requeued, record.reason) == ("0-1", None)
    listed, reasons = asyncio.run(
        house.service.reading.jobs_and_reasons(
            states=frozenset(), user="", name="", limit=0, everything=False
        )
    )
    assert [reasons.of_job(job) for job in listed if job.id == array] == [None]
    [row] = read_rows((job, reasons.of_job(job), "") for job in listed if job.id == array)
    assert [(line.array_rest, line.reason) for line in row.lines()] == [("2-5", "Cancelled")]


def test_before_a_pass_has_said_why_elements_wait_nothing_is_said_of_them() -> None:
    state = ClusterState()
    for event in (ev.JobSubmitted(1, builders.spec(array="0-3")), ev.CancelRequested(1, "alice", "2-3")):
        apply(state, event, 5, Rules(), Changes())
    policies = Policies(load("queue", "fifo"), load("placement", "first_fit"), load("comm", "none"))
    cycle, record = Cycle(state, policies, Rules()), state.jobs[1]
    assert (Reasons.of(cycle).of_job(record), with_reason(cycle, record, 5).reason) == (None, None)


def test_what_has_started_since_it_was_chosen_by_its_state_is_not_cancelled(house: House) -> None:
    house.do(ev.HostDrained("h1", "ann", "disk"))
    [job] = asyncio.run(house.service.submissions.submit([builders.spec()], ""))
    pending = frozenset((S.PENDING,))
    listed = asyncio.run(
        house.service.reading.jobs(states=pending, user="", name="", limit=0, everything=False)
    )
    assert [one.id for one in listed] == [job]
    house.do(ev.HostResumed("h1", "ann"))
    done = asyncio.run(house.service.changes.cancel_all([job], "alice", pending))
    assert [one.state for one in done] == [S.CONFIGURING]


def test_an_array_is_found_by_its_elements_that_were_cancelled_before_they_started(house: House) -> None:
    house.do(ev.HostUp("h1", "boot", "1"))
    array = submit(house, "0-5")
    house.do(ev.CancelRequested(array, "alice", "4-5"))

    def found(by_rests: bool, everything: bool = False) -> list[tuple[str, str, str]]:
        listed, reasons = asyncio.run(
            house.service.reading.jobs_and_reasons(
                states=frozenset((S.CANCELLED,)), user="", name="", limit=0, everything=everything,
                by_rests=by_rests,
            )
        )  # fmt: skip
        rows = read_rows((job, reasons.of_job(job), "") for job in listed)
        lines = [line for row in rows for line in row.lines()]
        return [(str(line.array_rest), line.state, line.reason) for line in lines]

    assert found(by_rests=False) == []
    gone = ("4-5", "CANCELLED", "Cancelled")
    assert found(by_rests=True) == [("2-3", "PENDING", "Resources"), gone]
    assert found(by_rests=True, everything=True) == found(by_rests=True)
    house.do(ev.RequeueRequested(array, "alice", "4-5"))
    house.do(ev.CancelRequested(array, "alice", "2"))
    assert found(by_rests=True)[1:] == [("2", "CANCELLED", "Cancelled")]


def test_the_elements_that_are_there_are_looked_for_in_a_set() -> None:
    """Of an array of 100,000, with thousands there, the requests of all others would wait for seconds."""

    class Known(list[int]):
        def __contains__(self, task: object) -> bool:
            raise AssertionError("all of them were gone through for one element")

    record = replace(builders.job(1, array="0-9"), array=Array(dropped="0-9"))
    store = MemoryStore()
    assert asyncio.run(gone(store, record, "0-9", Known(range(5)))) == (record,)
