"""Licences of the cluster: the text, who gets them, who waits, and what the queue says of it."""

from __future__ import annotations

from typing import Any

import pytest

from rm import licenses
from rm.config import JobsConfig
from rm.config import licenses as counted
from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.journal.starting_point import dump_state, restore_state
from rm.core.model.job import JobState
from rm.core.model.reasons import ReasonCode
from rm.core.registry import load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.explaining import explain, never_fits
from rm.core.scheduling.limits.licensing import counted as counted_of
from rm.errors import ConfigError, UsageError
from tests.builders import host, job, spec
from tests.invariants import validate_state

HOUR_US = 3_600_000_000


class World:
    """One host of eight CPUs under a cycle, and three licences matlab."""

    def __init__(self, queue: str = "priority") -> None:
        state = ClusterState(licenses={"matlab": 3, "ansys": 1})
        self.policies = Policies(load("queue", queue), load("placement", "first-fit"), load("comm", "none"))
        self.cycle = Cycle(state, self.policies)
        self.step(ev.HostAdded(host("h1", cpus=8)), ev.HostUp("h1", "boot", "1"))

    def step(self, *events: ev.Event) -> None:
        assert not self.cycle.step(events, 100).refused
        validate_state(self.cycle.state)

    def submit(self, number: int, text: str, **more: Any) -> None:
        self.step(ev.JobSubmitted(number, spec(licenses=text, **more)))

    def end(self, number: int) -> None:
        self.step(
            ev.TasksStarted(number, 1, "h1", 100, (0,)), ev.TaskExited(number, 1, "h1", 0, 0, 0, 100, 100)
        )

    @property
    def placed(self) -> set[int]:
        return {*self.cycle.state.placed}


def test_a_job_waits_until_its_licences_are_free() -> None:
    world = World()
    world.submit(1, "matlab:2")
    world.submit(2, "matlab:2,ansys")
    world.submit(3, "matlab")
    assert world.placed == {1, 3}
    reason = world.cycle.reason_of(world.cycle.state.jobs[2])
    assert reason is not None
    assert reason.code is ReasonCode.LICENSES
    assert reason.message == "needs 2 of the licences matlab, 1 free of 3 (held by job 1)"
    state = world.cycle.state
    assert counted_of(state.jobs.values(), state.licenses) == {"ansys": (1, 0), "matlab": (3, 3)}
    world.end(3)
    assert world.placed == {1}
    world.end(1)
    assert world.placed == {2}


def test_one_pass_gives_away_no_licence_twice() -> None:
    world = World()
    world.step(*(ev.JobSubmitted(i, spec(licenses="matlab")) for i in range(1, 6)))
    assert world.placed == {1, 2, 3}


def test_a_licence_is_held_until_the_last_task_has_ended() -> None:
    world = World()
    world.submit(1, "ansys")
    world.submit(2, "ansys")
    world.step(ev.TasksStarted(1, 1, "h1", 100, (0,)), ev.CancelRequested(1, "ann"))
    assert (world.cycle.state.jobs[1].state, world.placed) == (JobState.COMPLETING, {1})
    world.step(ev.TaskExited(1, 1, "h1", 0, 0, 15, 100, 100))
    assert world.placed == {2}


def test_a_job_that_wants_more_than_there_are_could_never_run() -> None:
    snapshot = World().cycle.state.snapshot(100)
    policies = World().policies
    for text, why in (("matlab:4", "4 of the licences matlab, 3 free of 3"), ("maple", "0 free of 0")):
        (reason,) = never_fits(job(1, licenses=text), snapshot, policies)
        assert why in reason.message
    assert never_fits(job(1, licenses="matlab:3"), snapshot, policies) == []


def test_why_says_what_is_missing() -> None:
    world = World()
    world.submit(1, "ansys")
    state, tuning = world.cycle.state, world.cycle.tuning
    decision, reasons, _ = explain(job(9, licenses="ansys"), state.snapshot(100), world.policies, tuning)
    assert decision is None
    assert "held by job 1" in reasons[0].message


def test_a_job_that_holds_a_licence_for_long_does_not_delay_the_reserved_one() -> None:
    world = World(queue="backfill")
    world.submit(1, "matlab:2", time_limit_us=HOUR_US)
    world.submit(2, "matlab:2", time_limit_us=HOUR_US)  # reserved for the end of 1
    world.submit(3, "matlab:2", time_limit_us=HOUR_US // 2)
    world.submit(4, "", time_limit_us=5 * HOUR_US)
    assert world.placed == {1, 4}
    world.submit(5, "matlab", time_limit_us=5 * HOUR_US)  # one is left beside the two of job 2
    assert world.placed == {1, 4, 5}


def test_a_replay_begins_with_the_licences() -> None:
    state = World().cycle.state
    assert restore_state(dump_state(state, 100), 100).licenses == {"matlab": 3, "ansys": 1}


def test_the_configuration_counts_them() -> None:
    assert counted(JobsConfig(licenses=("matlab=10", "ansys=2"))) == {"ansys": 2, "matlab": 10}
    with pytest.raises(ConfigError, match=r"jobs\.licenses: 'a b' is no list"):
        counted(JobsConfig(licenses=("a b",)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("b:2, a", (("a", 1), ("b", 2))),
        ("x@server:3", (("x@server", 3),)),
        ("a|b", None),
        ("a,a:2", None),
        ("a:0", None),
        ("a:-1", None),
        ("a,,b", None),
        (":2", None),
        ("a" * 5000, None),
    ],
)
def test_the_text(text: str, found: Any) -> None:
    if found is not None:
        assert licenses.parse(text) == found
        return
    with pytest.raises(UsageError):
        licenses.parse(text)
