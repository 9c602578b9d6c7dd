"""Launches of a slice and discards go to a host as one message."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Discard, Launch, Stop
from rm.core.model.job import Task, TaskPlacement
from rm.daemon.execution.outbox import Open, Outbox
from rm.protocol import attempts as wire
from rm.protocol.codes import Code
from tests.executing import SILENCE, House, executing, request_of

SLICE = [Launch(job, 1, "h1", (TaskPlacement(0, "h1"),), hold=False, slice_of=1) for job in (1, 2, 3)]


def element_of(action: Launch) -> wire.Launch:
    """What differs between elements, and what only some have."""
    task = wire.Task(rank=0, gpus=[], env={}, output=f"/out/{action.job}")
    env = {"ID": str(action.job), "SAME": "x"} | ({"FIRST": "1"} if action.job == 1 else {})
    return msgspec.structs.replace(request_of(action), env=env, tasks=[task])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    yield from executing(tmp_path)


@pytest.fixture
def slicing(tmp_path: Path) -> Iterator[House]:
    for made in executing(tmp_path, launch_of=element_of, slice_us=900_000):
        made.tasks |= {("h1", job, 1, 0): Task(0, "h1") for job in (1, 2, 3)}
        yield made


def test_a_slice_is_one_message_with_what_differs(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.submit(Stop(2, 1, "h1", 0, "cancel"), first=4)
    asked = slicing.hosts.take("slice")
    assert [c.op for c in slicing.hosts.made if c.op in ("launch", "slice", "stop")] == ["slice", "stop"]
    assert (asked.args["job"], asked.args["within_us"]) == (1, 900_000)
    assert asked.args["first"]["not_after_us"] == 9_000_000 + 10_000_000
    files = {"error": "", "input": ""}
    assert asked.args["followers"] == [
        {"job": 2, "attempt": 1, "env": {"ID": "2", "FIRST": None}, "output": "/out/2", **files},
        {"job": 3, "attempt": 1, "env": {"ID": "3", "FIRST": None}, "output": "/out/3", **files},
    ]
    asked.answer(refused=[[3, 1]])
    for number in (1, 2, 3):
        slicing.settled(number)
    (refused,) = slicing.inbox.of(ev.LaunchFailed)
    assert (refused.job, refused.code) == (3, Code.DISCARDED)
    assert slicing.inbox.of(ev.TasksStarted) == []


def test_an_element_that_is_to_end_is_launched_by_itself_and_begins_nothing(slicing: House) -> None:
    slicing.submit(*SLICE, Stop(2, 1, "h1", 0, "cancel"))
    slicing.connect()
    asked = slicing.hosts.take("slice")
    assert [follower["job"] for follower in asked.args["followers"]] == [3]
    launch = slicing.hosts.take("launch")
    assert (launch.args["job"], launch.args["hold"]) == (2, True)


def test_a_slice_whose_answer_is_lost_is_sent_again_together(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse(SILENCE)
    again = slicing.hosts.take("slice")
    again.answer(refused=[])
    slicing.settled(3)
    assert slicing.open() == []


def test_no_repetition_sends_a_part_of_a_slice(slicing: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts would run side by side, in the place of one."""
    rest, repeat = Outbox.rest, slicing.executor._dispatch._repeat

    def rest_late(outbox: Outbox, entry: Open) -> None:
        if entry.intent.id == 2:  # what failed with the first is due while the second is heard
            repeat("h1")
        rest(outbox, entry)

    monkeypatch.setattr(Outbox, "rest", rest_late)
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse(SILENCE)
    again = slicing.hosts.take("slice")
    assert [follower["job"] for follower in again.args["followers"]] == [2, 3]
    again.answer(refused=[])
    slicing.settled(3)
    assert slicing.open() == []


def test_a_slice_that_is_being_put_in_is_repeated_as_a_whole(tmp_path: Path) -> None:
    def build(action: Launch) -> wire.Launch:
        if action.job == 2:  # what failed before is due while the slice is put in
            house.executor._dispatch._repeat("h1")
        return element_of(action)

    house = House(tmp_path, launch_of=build, slice_us=900_000)
    house.connect()
    house.submit(*SLICE)
    assert [follower["job"] for follower in house.hosts.take("slice").args["followers"]] == [2, 3]
    assert (house.hosts.untaken("slice"), house.hosts.untaken("launch")) == ([], [])
    house.executor.close()


def test_a_refused_slice_has_failed_for_each(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse("no-space")
    slicing.settled(3)
    assert [(e.job, e.code) for e in slicing.inbox.of(ev.LaunchFailed)] == [
        (j, Code.NO_SPACE) for j in (1, 2, 3)
    ]


def test_an_agent_without_slices_gets_the_first_and_the_others_wait_as_before(slicing: House) -> None:
    slicing.connect()
    slicing.submit(*SLICE)
    slicing.hosts.take("slice").refuse("no-such-op")
    slicing.hosts.take("launch").answer(tasks=[{"rank": 0, "started_us": 5_000}], note="")
    slicing.settled(1)
    back = slicing.inbox.of(ev.TaskExited)
    assert [(e.job, e.why, e.started_us) for e in back] == [(2, "unstarted", None), (3, "unstarted", None)]
    assert slicing.open() == []


DISCARDS = [Discard(job, 1, "h1") for job in (1, 2, 3)]


def test_discards_are_one_message_and_those_that_have_not_ended_are_asked_for_by_themselves(
    house: House,
) -> None:
    house.connect()
    house.submit(*DISCARDS)
    house.hosts.take("forget").answer(left=[[2, 1]])
    house.hosts.take("discard").answer()
    for number in (1, 2, 3):
        house.settled(number)
    assert [c.args["attempts"] for c in house.hosts.made if c.op == "forget"] == [[[1, 1], [2, 1], [3, 1]]]
    assert house.open() == []


def test_discards_go_to_an_older_agent_one_by_one(house: House) -> None:
    house.connect()
    house.submit(*DISCARDS)
    house.hosts.take("forget").refuse("no-such-op")
    for _ in DISCARDS:
        house.hosts.take("discard").answer()
    house.settled(3)
    assert house.open() == []
